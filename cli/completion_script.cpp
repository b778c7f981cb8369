#include "cli/completion_script.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/output.hpp"

namespace kiln::cli {
namespace {

enum class Value : unsigned char { none, word, file, directory, choice };

struct Flag {
  std::vector<std::string> names{};  // with their dashes; empty for an argument
  std::string help{};
  Value value = Value::none;
  std::vector<std::string> choices{};
};

// One command, from "kiln" to "kiln cache extract".
struct Command {
  std::string path{};
  std::vector<std::pair<std::string, std::string>> verbs{};  // name and help
  std::vector<Flag> flags{};
};

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

Flag flag_of(const CLI::Option& option, const std::vector<Choices>& choices) {
  Flag flag{.help = first_line(option.get_description())};
  for (const auto& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) flag.names.push_back("--" + name);
  if (option.get_items_expected_max() == 0) return flag;
  const auto known = std::find_if(choices.begin(), choices.end(),
                                  [&](const auto& each) { return each.option == &option; });
  const auto type = option.get_type_name();
  flag.value = known != choices.end() ? Value::choice
               : type == "FILE"       ? Value::file
               : type == "DIR"        ? Value::directory
                                      : Value::word;
  if (known != choices.end()) flag.choices = known->values;
  return flag;
}

void collect(const CLI::App& app, const std::string& path, const std::vector<Flag>& inherited,
             const std::vector<Choices>& choices, std::vector<Command>& commands) {
  Command command{.path = path};
  auto passed_on = inherited;
  for (const auto* option : app.get_options()) {
    command.flags.push_back(flag_of(*option, choices));
    // --json may stand after any verb; each has its own --help, and only kiln has a version.
    const auto& names = command.flags.back().names;
    if (std::find(names.begin(), names.end(), "--json") != names.end())
      passed_on.push_back(command.flags.back());
  }
  command.flags.insert(command.flags.end(), inherited.begin(), inherited.end());
  const auto verbs = app.get_subcommands([](const CLI::App*) { return true; });
  for (const auto* verb : verbs)
    command.verbs.emplace_back(verb->get_name(), first_line(verb->get_description()));
  commands.push_back(std::move(command));
  for (const auto* verb : verbs)
    collect(*verb, path + ' ' + verb->get_name(), passed_on, choices, commands);
}

// 'text' for a POSIX shell, or for fish.
std::string quoted(const std::string& text, std::string_view shell) {
  std::string shown = "'";
  for (const char c : text) {
    if (c == '\'')
      shown += shell == "fish" ? "\\'" : "'\\''";
    else if (c == '\\' && shell == "fish")
      shown += "\\\\";
    else
      shown += c;
  }
  return shown + "'";
}

// The words of a command, and of bash's and zsh's `case` for the option before the cursor.
std::vector<std::string> words_of(const Command& command) {
  std::vector<std::string> words;
  for (const auto& [name, help] : command.verbs) words.push_back(name);
  for (const auto& flag : command.flags)
    words.insert(words.end(), flag.names.begin(), flag.names.end());
  return words;
}

const Flag* argument_of(const Command& command) {
  const auto found = std::find_if(command.flags.begin(), command.flags.end(),
                                  [](const Flag& flag) { return flag.names.empty(); });
  return found == command.flags.end() ? nullptr : &*found;
}

std::string paths_of(const std::vector<Command>& commands) {
  std::vector<std::string> paths;
  for (std::size_t i = 1; i < commands.size(); ++i) paths.push_back("'" + commands[i].path + "'");
  return joined(paths, "|");
}

// bash and zsh share all but the calls that offer.
struct Offers {
  const char* files;
  const char* directories;
  const char* words;  // before the list, which `words_end` follows
  const char* words_end;
  const char* nothing;
};

std::string cases_of(const std::vector<Command>& commands, const Offers& offers) {
  const auto offer = [&](Value value, const std::vector<std::string>& words) -> std::string {
    if (value == Value::file) return offers.files;
    if (value == Value::directory) return offers.directories;
    if (value == Value::word) return offers.nothing;
    return offers.words + joined(words, " ") + offers.words_end;
  };
  std::string text = "  case \"$command $previous\" in\n";
  for (const auto& command : commands)
    for (const auto& flag : command.flags) {
      if (flag.value == Value::none || flag.names.empty()) continue;
      std::vector<std::string> patterns;
      for (const auto& name : flag.names) patterns.push_back("'" + command.path + ' ' + name + "'");
      text +=
          "    " + joined(patterns, "|") + ") " + offer(flag.value, flag.choices) + "; return ;;\n";
    }
  text += "  esac\n  case \"$command\" in\n";
  for (const auto& command : commands) {
    auto words = words_of(command);
    const auto* argument = argument_of(command);
    text += "    '" + command.path + "')";
    // A word that is no option is the argument.
    if (argument != nullptr && argument->value == Value::file)
      text += std::string(" [[ $current == -* ]] || { ") + offers.files + "; return; };";
    if (argument != nullptr)
      words.insert(words.end(), argument->choices.begin(), argument->choices.end());
    text += ' ' + offer(Value::choice, words) + " ;;\n";
  }
  return text + "  esac\n";
}

std::string walk(const std::vector<Command>& commands, const std::string& word,
                 const std::string& first, const std::string& last) {
  return "  for ((i = " + first + "; i < " + last + "; i++)); do\n    case \"$command " + word +
         "\" in\n      " + paths_of(commands) + ") command=\"$command " + word +
         "\" ;;\n    esac\n  done\n";
}

std::string bash_script(const std::vector<Command>& commands) {
  return "# Completion of kiln for bash: source <(kiln completion bash)\n"
         "_kiln() {\n"
         "  local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
         "  local command=kiln i\n"
         "  # bash parts --option=value at the sign.\n"
         "  if [[ $current == '=' ]]; then current=''\n"
         "  elif [[ $previous == '=' ]]; then previous=\"${COMP_WORDS[COMP_CWORD-2]}\"; fi\n" +
         walk(commands, "${COMP_WORDS[i]}", "1", "COMP_CWORD") + "  COMPREPLY=()\n" +
         cases_of(commands,
                  {.files = "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "
                            "\"$current\")",
                   .directories = "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "
                                  "\"$current\")",
                   .words = "mapfile -t COMPREPLY < <(compgen -W '",
                   .words_end = "' -- \"$current\")",
                   .nothing = ":"}) +
         "}\ncomplete -F _kiln kiln\n";
}

std::string zsh_script(const std::vector<Command>& commands) {
  return "#compdef kiln\n"
         "# Completion of kiln for zsh: source <(kiln completion zsh), after compinit, or a file\n"
         "# called _kiln in a directory of $fpath.\n"
         "_kiln() {\n"
         "  local current=\"${words[CURRENT]}\" previous=\"${words[CURRENT-1]}\" command=kiln\n"
         "  integer i\n"
         "  # --option=value is one word here.\n"
         "  if [[ $current == --*=* ]]; then previous=\"${current%%=*}\"; compset -P '*='; fi\n" +
         walk(commands, "${words[i]}", "2", "CURRENT") +
         cases_of(commands, {.files = "_files",
                             .directories = "_files -/",
                             .words = "compadd -- ",
                             .words_end = "",
                             .nothing = ":"}) +
         "}\n"
         "if [[ ${funcstack[1]} == _kiln ]]; then _kiln \"$@\"; else compdef _kiln kiln; fi\n";
}

std::string fish_script(const std::vector<Command>& commands) {
  std::string text =
      "# Completion of kiln for fish: kiln completion fish | source\n"
      "function __kiln_command\n"
      "  set -l command kiln\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$command $word\"\n      case";
  for (std::size_t i = 1; i < commands.size(); ++i) text += " '" + commands[i].path + "'";
  text +=
      "\n        set command \"$command $word\"\n    end\n  end\n  echo $command\nend\n"
      "complete -c kiln -f\n";
  for (const auto& command : commands) {
    const auto head = "complete -c kiln -n 'test (__kiln_command) = \"" + command.path + "\"'";
    for (const auto& [name, help] : command.verbs)
      text += head + " -a " + name + " -d " + quoted(help, "fish") + "\n";
    for (const auto& flag : command.flags) {
      text += head;
      for (const auto& name : flag.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!flag.names.empty() && flag.value != Value::none) text += " -x";
      // -F would offer files for every other option as well.
      if (flag.value == Value::file)
        text += flag.names.empty() ? " -F" : " -a '(__fish_complete_path)'";
      if (flag.value == Value::directory) text += " -a '(__fish_complete_directories)'";
      if (flag.value == Value::choice) text += " -a " + quoted(joined(flag.choices, " "), "fish");
      text += " -d " + quoted(flag.help, "fish") + "\n";
    }
  }
  return text;
}

}  // namespace

const std::vector<std::string>& completion_shells() {
  static const std::vector<std::string> shells = {"bash", "zsh", "fish"};
  return shells;
}

std::string completion_script(std::string_view shell, const CLI::App& kiln,
                              const std::vector<Choices>& choices) {
  std::vector<Command> commands;
  collect(kiln, "kiln", {}, choices, commands);
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  return fish_script(commands);
}

}  // namespace kiln::cli
