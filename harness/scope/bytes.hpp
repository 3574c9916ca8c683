// Puts values into a row of bytes, to be hashed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace pccl::scope {

class Bytes {
public:
    template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T> Bytes& operator<<(T value) {
        text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
        return *this;
    }
    Bytes& operator<<(std::string_view value) {
        *this << value.size();
        text_.append(value);
        return *this;
    }
    void clear() { text_.clear(); }
    const std::string& text() const { return text_; }

private:
    std::string text_;
};

}  // namespace pccl::scope
