#include "bindings/master.hpp"

#include "bindings/address.hpp"
#include "bindings/failure.hpp"
#include "bindings/gil.hpp"

namespace nb = nanobind;

namespace pccl_python {

namespace {

class Master {
public:
    Master(const nb::bytes& address, std::uint16_t port) {
        require(pcclCreateMaster(socket_address(address, port), &master_), "pcclCreateMaster");
    }
    Master(const Master&) = delete;
    Master& operator=(const Master&) = delete;
    ~Master() { close(); }

    void run() {
        pcclResult_t result;
        {
            const WithoutGil released;
            result = pcclRunMaster(master_);
        }
        require(result, "pcclRunMaster");
    }
    std::uint16_t port() const {
        std::uint16_t port = 0;
        require(pcclGetMasterPort(master_, &port), "pcclGetMasterPort");
        return port;
    }
    // Stops the master and waits until it has stopped.
    void interrupt() {
        pcclResult_t result;
        {
            const WithoutGil released;
            result = pcclInterruptMaster(master_);
            if (result == pcclSuccess) result = pcclMasterAwaitTermination(master_);
        }
        require(result, "pcclInterruptMaster");
    }
    void close() {
        if (master_ == nullptr) return;
        const WithoutGil released;
        pcclDestroyMaster(master_);
        master_ = nullptr;
    }

private:
    pcclMasterInstance_t* master_ = nullptr;
};

}  // namespace

void bind_master(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<Master>(module, "Master")
        .def(nb::init<const nb::bytes&, std::uint16_t>(), "address"_a, "port"_a)
        .def("run", &Master::run)
        .def("port", &Master::port)
        .def("interrupt", &Master::interrupt)
        .def("close", &Master::close);
}

}  // namespace pccl_python
