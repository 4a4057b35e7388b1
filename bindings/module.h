#pragma once

#include <nanobind/nanobind.h>

void bind_numbers(nanobind::module_& module);
void bind_codec_timing(nanobind::module_& module);
void bind_engine(nanobind::module_& module);
