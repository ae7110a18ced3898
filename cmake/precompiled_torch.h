// The precompiled header of the layers that use LibTorch. Not included by hand.
#pragma once

#include "base/aten.h"
#include "cmake/precompiled_plain.h"
