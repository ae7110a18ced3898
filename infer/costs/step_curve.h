// The verification curve of a model as a file: the time of a decoder step by the number of tokens that it processes.
// `draftsmith bench` writes it, `draftsmith plan` reads it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace draftsmith::infer {

struct StepCurve {
  struct Point {
    int64_t tokens = 1;  // of each row
    double seconds = 0;  // above 0
  };

  // Where the curve was measured.
  std::string model;      // directory
  std::string dtype;      // "fp32", "int8", ...
  std::string processor;  // or the device's name
  int64_t threads = 1;
  int64_t rows = 1;    // of the batch
  int64_t length = 0;  // tokens in the cache before the step
  int64_t source = 0;  // tokens of the source; 0: decoder-only

  std::vector<Point> points;  // rising in tokens, from 1 on

  // Returns the seconds of steps of 1, 2, 3, ... tokens up to the last point's, linear between points: the form of
  // StepCosts::target.
  std::vector<double> seconds() const;
  // Returns the time of a point as a multiple of the time of one token.
  double relative(const Point& point) const { return point.seconds / points.front().seconds; }
  // Returns whether both were measured with one processor, number of threads and batch, so that times can be compared.
  bool measured_like(const StepCurve& other) const;
  // Returns model, type and machine in a line.
  std::string description() const;
};

// Longest step of a curve, in tokens.
inline constexpr int64_t kLongestStep = 1024;

// Writes the curve as JSON. Errors: those of write_json().
void write_step_curve(const std::filesystem::path& file, const StepCurve& curve);

// Reads such a file. Errors: a UserError with every problem of the file and its place there.
StepCurve read_step_curve(const std::filesystem::path& file);

// Returns whether a file begins as curves do.
bool is_step_curve(const std::filesystem::path& file);

// Returns the description that `draftsmith inspect` prints.
std::string describe_step_curve(const StepCurve& curve);

}  // namespace draftsmith::infer
