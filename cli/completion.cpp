// kiln completion: a script that completes kiln's command line in a shell.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/completion_script.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {

Verb add_completion(CLI::App& kiln, const std::vector<Choices>& choices) {
  auto& verb = add_verb(kiln, "completion", "Print a completion script for a shell",
                        "Examples:\n"
                        "  kiln completion bash > /etc/bash_completion.d/kiln\n"
                        "  source <(kiln completion zsh)\n"
                        "  kiln completion fish > ~/.config/fish/completions/kiln.fish");
  const auto shell = std::make_shared<std::string>();
  auto& option = add_option(verb, "SHELL", *shell, "", "bash, zsh or fish");
  option.required()->check(CLI::IsMember(completion_shells()).description(""));
  return {&verb,
          [shell, &kiln, &choices](Output& output) -> Outcome {
            const auto script = completion_script(*shell, kiln, choices);
            if (output.form() == OutputForm::text) output.bytes(script);
            output.object({{"shell", *shell}, {"script", script}});
            return ExitCode::done;
          },
          {{&option, completion_shells()}}};
}

}  // namespace kiln::cli
