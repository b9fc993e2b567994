// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs a path, and prints its report as JSON: report PATH
#include <framepath.h>
#include <iostream>
#include <memory>

template <auto free> struct Free {
    template <typename T> void operator()(T *handle) const { free(handle); }
};
using Error = std::unique_ptr<framepath_error, Free<framepath_error_free>>;
using Report = std::unique_ptr<framepath_report, Free<framepath_report_free>>;

int main(int argc, char **argv)
{
    framepath_error *failed = nullptr;
    Report report{framepath_run(argc > 1 ? argv[1] : nullptr, nullptr, nullptr, &failed)};
    Error error{failed};
    if (!report) {
        std::cerr << "report: " << framepath_error_text(error.get()) << '\n';
        return 1;
    }
    std::cout << framepath_report_json(report.get()) << '\n';
}
