// The one place where Boost.Asio's bodies are compiled.
#include <boost/asio/impl/src.hpp>
