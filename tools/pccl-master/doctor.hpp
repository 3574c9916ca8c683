// `pccl-master doctor`: what stands between this host and a run, before a peer joins it.
//
// It changes nothing in the run. With an invitation it checks the authority of the master, but uses the invitation only
// if `enrol` is set.
#pragma once

#include <string>

namespace pccl_master {

struct DoctorOptions {
    std::string master;      // HOST:PORT; empty: that of the invitation
    std::string invitation;  // empty: PCCL_INVITE
    bool enrol = false;      // get a certificate, which uses the invitation once
};

// Prints one line for each finding as soon as it is known, and below it what to do. Returns the exit code: 0: a peer
// can join from here; 1: it cannot; 2: wrong usage.
int doctor(const DoctorOptions& options);

}  // namespace pccl_master
