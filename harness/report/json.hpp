// Writes JSON: puts commas and escapes in one place.
//
// Strings are written as ASCII plus valid UTF-8. `<`, `>` and `&` are escaped too, so any text is safe inside a script
// element. Bytes that are not UTF-8 become U+FFFD.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace pccl::harness::report {

class Json {
public:
    Json& open(char bracket) {  // '{' or '['
        separate();
        out_ += bracket;
        fresh_ = true;
        return *this;
    }
    Json& close(char bracket) {
        out_ += bracket;
        fresh_ = false;
        return *this;
    }
    Json& key(std::string_view name) {
        value(name);
        out_ += ':';
        fresh_ = true;
        return *this;
    }
    Json& value(std::string_view text) {
        separate();
        quote(text);
        return *this;
    }
    Json& value(const char* text) { return value(std::string_view(text)); }
    Json& value(std::integral auto number) {
        separate();
        out_ += std::to_string(number);
        return *this;
    }
    Json& value(bool yes) { return raw(yes ? "true" : "false"); }
    Json& raw(std::string_view text) {  // `text` is JSON already
        separate();
        out_ += text;
        return *this;
    }
    Json& line() {  // what follows begins a new line
        line_ = true;
        return *this;
    }
    template <class Value>
    Json& field(std::string_view name, const Value& what) {
        return key(name).value(what);
    }

    std::string take() { return std::move(out_); }

private:
    void separate();
    void quote(std::string_view text);

    std::string out_;
    bool fresh_ = true;
    bool line_ = false;
};

}  // namespace pccl::harness::report
