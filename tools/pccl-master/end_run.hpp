// `pccl-master end`: ends the run of a state directory, whether or not a master serves it at the moment.
#pragma once

#include <string>

namespace pccl_master {

// Asks the master that holds the directory to end the run (SIGUSR1), waits until it has stopped, and empties the
// journal. Blocks for at most half a minute. False: `error` names the cause and the remedy.
bool end_run(const std::string& directory, std::string& error);

}  // namespace pccl_master
