// SPDX-License-Identifier: MIT
// Includes the same headers as use.cpp: a function that is not inline would now be there twice.
#include "use.hpp"
