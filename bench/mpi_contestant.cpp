// One rank of an MPI job whose all-reduce is measured (contest.hpp has its commands). mpirun gives its own input to one
// rank only, so commands and answers go through the named pipes in.RANK and out.RANK in the folder that is the argument.
// A rank that waits for a command waits in read(), where MPI does not spin.
#include "contest.hpp"

#include <climits>
#include <csignal>
#include <fstream>
#include <mpi.h>
#include <string>
#include <sys/prctl.h>

int main(int argc, char** argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MPI_Init(&argc, &argv);
    int rank = 0, world = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    int status = 2;
    if (argc == 2) {
        const std::string folder = argv[1], number = std::to_string(rank);
        std::ofstream answers(folder + "/out." + number);
        std::ifstream commands(folder + "/in." + number);
        answers << "ready" << std::endl;
        pccl::bench::obey_commands(commands, answers, static_cast<unsigned>(rank), static_cast<unsigned>(world),
                                   [](float* send, float* receive, std::size_t elements) {
                                       if (elements > INT_MAX) return false;
                                       const void* source = send == receive ? MPI_IN_PLACE : send;
                                       return MPI_Allreduce(source, receive, static_cast<int>(elements), MPI_FLOAT,
                                                            MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
                                   });
        status = 0;
    }
    MPI_Finalize();
    return status;
}
