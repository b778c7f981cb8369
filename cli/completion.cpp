// kiln completion: a script that completes kiln's command line in a shell.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/completion_script.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {

Verb add_completion(CLI::App& kiln, const std::vector<Choices>& choices) {
  auto* command = kiln.add_subcommand("completion", "Print a completion script for a shell");
  command->footer(
      "Examples:\n"
      "  kiln completion bash > /etc/bash_completion.d/kiln\n"
      "  source <(kiln completion zsh)\n"
      "  kiln completion fish > ~/.config/fish/completions/kiln.fish");
  const auto shell = std::make_shared<std::string>();
  auto* option = command->add_option("SHELL", *shell, "bash, zsh or fish")
                     ->required()
                     ->type_name("")
                     ->check(CLI::IsMember(completion_shells()).description(""));
  return {command,
          [shell, &kiln, &choices](Output& output) -> Outcome {
            const auto script = completion_script(*shell, kiln, choices);
            if (output.form() == OutputForm::text) output.bytes(script);
            output.object({{"shell", *shell}, {"script", script}});
            return ExitCode::done;
          },
          {{option, completion_shells()}}};
}

}  // namespace kiln::cli
