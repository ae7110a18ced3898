// The precompiled header of tests of the layers without LibTorch. Not included by hand.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cmake/precompiled_plain.h"
