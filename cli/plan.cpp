// kiln plan: how a kernel would share out a call, and why. Needs no GPU and no cache.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/verbs.hpp"
#include "kiln/kernels/kimi_k3_mla/plan.hpp"

namespace kiln::cli {
namespace {

namespace mla = kernels::kimi_k3_mla;

struct PlanArguments {
  std::string kernel{};
  mla::Problem problem{};
  unsigned sm_count = 0;  // 0: of the constants' machine
  std::string constants = "published";
};

Json json_of(const Extent& extent) {
  return Json::array({extent.x, extent.y, extent.z});
}

std::string text_of(const Extent& extent) {
  return std::to_string(extent.x) + " x " + std::to_string(extent.y) + " x " +
         std::to_string(extent.z);
}

void write_lines(const mla::Plan& plan, const std::vector<std::string>& reasons, Output& output) {
  output.line("route            " + std::string(to_string(plan.route)));
  output.line("row tile         " + std::to_string(plan.row_tile));
  output.line("splits           " + std::to_string(plan.num_split));
  output.line("unsplit items    " + std::to_string(plan.unsplit_items) + " of " +
              std::to_string(plan.items));
  output.line("grid             " + text_of(plan.grid) + " blocks, clusters of " +
              std::to_string(plan.cluster_blocks));
  output.line("reducer          " + std::string(to_string(plan.reducer)) +
              (plan.reducer == mla::Reducer::none
                   ? ""
                   : ", " + text_of(plan.reducer_grid) + " blocks for " +
                         counted(plan.reduce_rows, "row")));
  output.line("workspace        " + counted(workspace_bytes(plan), "byte"));
  for (const auto& reason : reasons) output.line("  " + reason);
}

Outcome run(const PlanArguments& arguments, Output& output) {
  const mla::Constants& constants = *mla::find_constants(arguments.constants);
  const unsigned sm_count = arguments.sm_count != 0 ? arguments.sm_count : constants.sm_count;
  const auto plan = mla::plan(arguments.problem, sm_count, constants);
  if (!plan) return failure_of(plan.error());
  const auto reasons = mla::reasons(arguments.problem, sm_count, constants);
  write_lines(*plan, reasons, output);
  output.object({{"kernel", arguments.kernel},
                 {"constants", constants.name},
                 {"sms", sm_count},
                 {"heads", arguments.problem.heads},
                 {"batch", arguments.problem.batch},
                 {"q", arguments.problem.query},
                 {"kv", arguments.problem.keys},
                 {"route", to_string(plan->route)},
                 {"row_tile", plan->row_tile},
                 {"items", plan->items},
                 {"num_split", plan->num_split},
                 {"unsplit_items", plan->unsplit_items},
                 {"cluster_blocks", plan->cluster_blocks},
                 {"grid", json_of(plan->grid)},
                 {"reducer", to_string(plan->reducer)},
                 {"reduce_rows", plan->reduce_rows},
                 {"reducer_grid", json_of(plan->reducer_grid)},
                 {"workspace_bytes", workspace_bytes(*plan)},
                 {"reasons", reasons}});
  return ExitCode::done;
}

template <class Number>
CLI::Option& add_number(CLI::App& verb, const std::string& name, Number& value, Number least,
                        Number most, const std::string& help) {
  return decimal(*verb.add_option(name, value, help)
                      ->type_name("N")
                      ->check(CLI::Range(least, most).description("")));
}

}  // namespace

Verb add_plan(CLI::App& kiln) {
  auto& verb = add_verb(
      kiln, "plan", "Show how a kernel shares out a call, and why; needs no GPU",
      "Examples:\n"
      "  kiln plan kimi_k3_mla --heads 12 --batch 8 --q 1 --kv 342305 --sms 148\n"
      "  kiln plan kimi_k3_mla --heads 96 --batch 2 --q 512 --kv 32768 --constants h200 --json\n"
      "Requests may be shorter than --q and --kv say, which the plan is made for.");
  const auto arguments = std::make_shared<PlanArguments>();
  auto& problem = arguments->problem;
  const std::vector<std::string> kernels = {"kimi_k3_mla"};
  auto& kernel = add_option(verb, "KERNEL", arguments->kernel, "", "kimi_k3_mla");
  kernel.required()->check(CLI::IsMember(kernels).description(""));
  add_number(verb, "--heads", problem.heads, 1u, mla::kMostHeads, "Heads of this rank").required();
  constexpr kernels::u64 none = 0, most_keys = mla::kMostKeys, most_batch = mla::kMostBatch;
  add_number(verb, "--batch", problem.batch, none, most_batch, "Requests").required();
  add_number(verb, "--q", problem.query, none, most_keys, "The most new tokens of a request")
      .required();
  add_number(verb, "--kv", problem.keys, none, most_keys,
             "The most keys of a request, its new tokens among them")
      .required();
  add_number(verb, "--sms", arguments->sm_count, 1u, mla::kMostSms,
             "Streaming multiprocessors [those of the constants' machine]");
  const auto sets = mla::constants_names();
  auto& constants = add_option(verb, "--constants", arguments->constants, "SET",
                               "What to take for granted: published or h200 [published]");
  constants.check(CLI::IsMember(sets).description(""));
  return {&verb,
          [arguments](Output& output) { return run(*arguments, output); },
          {{&kernel, kernels}, {&constants, sets}}};
}

}  // namespace kiln::cli
