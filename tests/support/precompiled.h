// What most tests include, for builds with -DHONE_PRECOMPILE=ON; see base/precompiled.h.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/precompiled.h"
