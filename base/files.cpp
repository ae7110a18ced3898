#include "base/files.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/signals.h"

namespace draftsmith {

namespace fs = std::filesystem;

namespace {

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

uint64_t random_bits() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Returns a name beside `final_path` that no other process or thread uses. It also differs from files that a killed
// process with the same number left behind; in containers numbers repeat.
fs::path temporary_name(const fs::path& final_path) {
  static const uint64_t kStart = random_bits();
  static std::atomic<uint64_t> counter{0};
  return parent_of(final_path) /
         fmt::format(".{}.tmp-{}-{:x}-{}", final_path.filename().string(), getpid(), kStart, counter++);
}

// Returns whether a rename to `path` would replace a device or a pipe, as root may do: /dev/null, /dev/stdout.
bool is_special(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool special = fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
  // Links into /proc, such as /dev/stdout, lead to open files of any kind.
  return special || fs::read_symlink(path, error).string().starts_with("/proc/");
}

std::string hint_for(int error, const fs::path& path) {
  if (error != ENOSPC && error != EDQUOT) return "";
  return fmt::format("{} are free there; make room or write to another disk", human_bytes(disk_free(path)));
}

RunError failed_write(const fs::path& file, const std::string& doing, int error) {
  return RunError({file.string(), doing, "", std::strerror(error), hint_for(error, file)});
}

// Makes a rename or an unlink in `directory` survive a crash. Ignores file systems that cannot sync a directory.
void sync_directory(const fs::path& directory) {
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

EVP_MD_CTX* of(void* context) {
  return static_cast<EVP_MD_CTX*>(context);
}

void require(bool done) {
  if (!done) throw std::runtime_error("OpenSSL cannot compute a SHA-256");
}

}  // namespace

AtomicPath::AtomicPath(fs::path final_path) : final_(std::move(final_path)), temporary_(temporary_name(final_)) {
  std::error_code error;
  if (!fs::is_directory(parent_of(final_), error)) {
    throw UserError({final_.string(), "its directory does not exist", "an existing directory",
                     parent_of(final_).string(), "create it or choose another path"});
  }
  if (is_special(final_)) {
    throw UserError({final_.string(), "is a device or a pipe and cannot be replaced by a file",
                     "a path for a regular file", "", "write to a file first"});
  }
}

AtomicPath::~AtomicPath() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void AtomicPath::commit() {
  const int descriptor = open(temporary_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw failed_write(final_, "the finished file cannot be opened again", errno);
  const int synced = fsync(descriptor);
  const int sync_error = errno;
  close(descriptor);
  // EINVAL: the file system cannot sync.
  if (synced != 0 && sync_error != EINVAL) throw failed_write(final_, "the file cannot be written to disk", sync_error);
  if (std::rename(temporary_.c_str(), final_.c_str()) != 0) {
    throw failed_write(final_, "the finished file cannot be renamed into place", errno);
  }
  committed_ = true;
  sync_directory(parent_of(final_));
}

AtomicFile::AtomicFile(fs::path final_path) : path_(std::move(final_path)) {
  descriptor_ = open(path_.temporary().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    throw UserError({path_.final_path().string(), "the file cannot be created", "", std::strerror(errno), ""});
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void AtomicFile::write(std::string_view bytes) {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile: write after commit");
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      throw failed_write(path_.final_path(),
                         fmt::format("writing failed after {} bytes, with {} more to write", written_, bytes.size()),
                         errno);
    }
    written_ += static_cast<uint64_t>(count);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void AtomicFile::commit() {
  if (descriptor_ < 0) throw std::logic_error("AtomicFile: commit twice");
  const int closed = close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) throw failed_write(path_.final_path(), "the file cannot be closed", errno);
  path_.commit();
}

void write_file_atomic(const fs::path& file, std::string_view content) {
  AtomicFile out(file);
  out.write(content);
  out.commit();
}

std::string read_file(const fs::path& file, uint64_t max_bytes) {
  const auto bad = [&](const std::string& what, const std::string& expected, const std::string& found) {
    return UserError({file.string(), what, expected, found, ""});
  };
  struct stat info {};
  if (stat(file.c_str(), &info) != 0) throw bad("the file cannot be read", "", std::strerror(errno));
  if (S_ISDIR(info.st_mode)) throw bad("is a directory", "a file", "");
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw bad("the file cannot be read", "", std::strerror(errno));

  std::string content;
  if (S_ISREG(info.st_mode) && static_cast<uint64_t>(info.st_size) <= max_bytes) {
    content.reserve(static_cast<size_t>(info.st_size));
  }
  std::string piece(1 << 16, '\0');
  ssize_t count = 0;
  while ((count = ::read(descriptor, piece.data(), piece.size())) > 0) {
    content.append(piece, 0, static_cast<size_t>(count));
    if (content.size() > max_bytes) break;
  }
  const int error = errno;
  close(descriptor);
  if (count < 0) throw bad("the file cannot be read", "", std::strerror(error));
  if (content.size() > max_bytes) {
    throw bad("the file is too large", "at most " + human_bytes(max_bytes),
              S_ISREG(info.st_mode) ? human_bytes(static_cast<uint64_t>(info.st_size)) : "more");
  }
  return content;
}

void make_directories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error || !fs::is_directory(directory)) {
    throw UserError({directory.string(), "the directory cannot be created", "",
                     error ? error.message() : "a file of that name", ""});
  }
}

void replace_link(const fs::path& link, const fs::path& target) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(link, error);
  if (fs::exists(status) && !fs::is_symlink(status)) {
    throw RunError({link.string(), "is not a link and is not replaced", "a link or nothing", "", "move it away"});
  }
  const fs::path temporary = temporary_name(link);
  fs::create_symlink(target.filename(), temporary, error);
  if (error) throw failed_write(link, "the link cannot be created", error.value());
  fs::rename(temporary, link, error);
  if (error) throw failed_write(link, "the link cannot be renamed into place", error.value());
}

uint64_t disk_free(const fs::path& path) {
  std::error_code error;
  fs::path existing = fs::absolute(path, error);
  while (!fs::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  const fs::space_info space = fs::space(existing, error);
  return error ? 0 : space.available;
}

std::string human_bytes(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB", "PB", "EB"}) {
    if (value < 999.95) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

TemporaryDirectory::TemporaryDirectory(const fs::path& parent) {
  std::string pattern = (parent / "draftsmith-XXXXXX").string();
  if (!mkdtemp(pattern.data())) {
    throw RunError({pattern, "a temporary directory cannot be created", "", std::strerror(errno), ""});
  }
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

FileLock::FileLock(const fs::path& file, const std::string& flag) {
  descriptor_ = ::open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw UserError({file.string(), "the file cannot be created", "", std::strerror(errno), ""});
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;  // or no locks are to be had
  ::close(descriptor_);
  throw UserError({file.parent_path().string(), "another run is working in this directory", "", "",
                   "wait for it to end, or choose another directory with " + flag});
}

FileLock::~FileLock() {
  ::close(descriptor_);
}

MappedFile::MappedFile(const std::filesystem::path& file) {
  const auto refuse = [&](const std::string& what, const std::string& found) {
    throw UserError({file.string(), what, "", found, ""});
  };
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // or a pipe would be waited for
  if (descriptor < 0) refuse("cannot open the file", std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  bytes_ = regular ? static_cast<int64_t>(status.st_size) : 0;
  const auto size = static_cast<size_t>(bytes_);
  void* mapped = size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0) : nullptr;
  const int error = errno;
  ::close(descriptor);
  if (!regular) refuse("cannot read the file", "no regular file");
  if (mapped == MAP_FAILED) refuse("cannot map the file into memory", std::strerror(error));
  if (mapped == nullptr) return;
  data_ = std::shared_ptr<const char>(static_cast<const char*>(mapped),
                                      [size](const char* data) { ::munmap(const_cast<char*>(data), size); });
}

void MappedFile::will_need() const {
  constexpr int64_t kPiece = 1 << 17;  // Linux reads no more of a request than a device's read-ahead, 128 KB or more
  const int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const int64_t end = std::min(bytes_, memory / 2);  // what lies further would push out what comes first
  for (int64_t begin = 0; begin < end; begin += kPiece) {
    const auto size = static_cast<size_t>(std::min(kPiece, end - begin));
    ::madvise(const_cast<char*>(data_.get()) + begin, size, MADV_WILLNEED);
  }
}

void MappedFile::forget_pages() const {
  if (data_ != nullptr) ::madvise(const_cast<char*>(data_.get()), static_cast<size_t>(bytes_), MADV_DONTNEED);
}

Sha256::Sha256() : context_(EVP_MD_CTX_new(), [](void* context) { EVP_MD_CTX_free(of(context)); }) {
  require(context_ != nullptr && EVP_DigestInit_ex(of(context_.get()), EVP_sha256(), nullptr) == 1);
}

void Sha256::update(std::string_view bytes) {
  require(EVP_DigestUpdate(of(context_.get()), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex_digest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  require(EVP_DigestFinal_ex(of(context_.get()), digest.data(), &size) == 1);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex_digest();
}

std::string sha256_file(const std::filesystem::path& file) {
  const auto failed = [&] {
    return UserError({file.string(), "the file cannot be read", "", std::strerror(errno), ""});
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "rb"), std::fclose);
  if (!stream) throw failed();
  std::vector<char> buffer(1 << 20);
  Sha256 hash;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), stream.get())) {
    work_point();
    hash.update({buffer.data(), count});
  }
  if (std::ferror(stream.get())) throw failed();
  return hash.hex_digest();
}

std::string RememberedHashes::of(const std::filesystem::path& file) {
  std::error_code error;
  const fs::path path = fs::canonical(file, error);
  if (error) return sha256_file(file);  // says what is wrong
  const fs::file_time_type changed = fs::last_write_time(path);
  const Known now{fs::file_size(path), changed.time_since_epoch().count()};
  {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(path.string());
    if (found != known_.end() && found->second.size == now.size && found->second.changed == now.changed) {
      return found->second.sha256;
    }
  }
  const bool settled = fs::file_time_type::clock::now() - changed > std::chrono::seconds(2);
  std::string hash = sha256_file(path);
  if (!settled) return hash;
  const std::lock_guard lock(mutex_);
  known_[path.string()] = {now.size, now.changed, hash};
  return hash;
}

}  // namespace draftsmith
