// The functions by which each binding file adds to netfold._core.
#pragma once

#include <nanobind/nanobind.h>

void bind_numbers(nanobind::module_& module);
void bind_codec_timing(nanobind::module_& module);
void bind_switch_group(nanobind::module_& module);
void bind_peer_group(nanobind::module_& module);
void bind_split_group(nanobind::module_& module);
void bind_nic_group(nanobind::module_& module);
void bind_agent_group(nanobind::module_& module);
void bind_schedule(nanobind::module_& module);
void bind_frames(nanobind::module_& module);
void bind_sim(nanobind::module_& module);
void bind_packets(nanobind::module_& module);
