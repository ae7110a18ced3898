// The names of toml++'s types without their definitions. Version 3.4 (Debian 13) has its header of them under another
// name than 3.3 (Debian 12).
#pragma once

#if __has_include(<toml++/impl/forward_declarations.hpp>)
#include <toml++/impl/forward_declarations.hpp>
#else
#include <toml++/impl/forward_declarations.h>
#endif
