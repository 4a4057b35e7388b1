// The settings of MPI programs, from the environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "netfold.h"

namespace netfold::mpi {

struct Settings {
  bool is_on = true;  // NETFOLD_MPI=off: everything is MPI's
  // NETFOLD_MPI_MIN_BYTES: smaller ones are MPI's. From 4 KiB up Netfold is the faster one, at 1 KiB Open MPI is as
  // fast.
  std::size_t min_bytes = 2048;
  std::string algorithm;           // NETFOLD_ALGORITHM; "": by size and world
  nf_format format = NF_AS_IT_IS;  // NETFOLD_FORMAT
  // NETFOLD_TIMEOUT_S. MPI itself never gives up on a rank that computes for long; a rank that dies is noticed at once
  // all the same.
  double timeout_s = 1800;
  std::string bind;            // NETFOLD_BIND: host that other machines reach this rank at; "": found
  std::string roce;            // NETFOLD_ROCE: this rank's RoCE endpoint; "": ranks fold among themselves
  std::string nic;             // NETFOLD_NIC: this rank's smart NIC; "": none
  bool requires_auth = false;  // NETFOLD_REQUIRE_AUTH: tags on what leaves a machine
  std::string secret;          // NETFOLD_SECRET
  std::string interfaces;      // NETFOLD_INTERFACE, to other machines; "": the routing table's
  int tcp_streams = 1;         // NETFOLD_TCP_STREAMS
  int dscp = 0;                // NETFOLD_DSCP
  bool is_talkative = false;   // NETFOLD_LOG=info
  std::string error;           // what is wrong with them; "": nothing
};

Settings read_settings();

// Equal where ranks agree on what they must agree on.
std::uint64_t digest_of(const Settings& settings);

}  // namespace netfold::mpi
