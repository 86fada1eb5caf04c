import type { ArgumentSpec } from "../command.ts";
import type { OptionSpec } from "../options.ts";
import { CACHE_DIR_OPTION, CONF_DIR_OPTION, JSON_OPTION, log, PLUGIN_DIR_OPTION, RUNTIME_OPTIONS } from "./runtime.ts";

export const NETWORKS_ARGUMENT: ArgumentSpec = {
  name: "NETWORK",
  help: 'names in the configuration directory, or paths (with a "/")',
  several: true,
};

export const PRINT_JSON_OPTION: OptionSpec = {
  ...JSON_OPTION,
  help: `print JSON, as with --format json; ${JSON_OPTION.help}`,
};

/** Commands with these call no plugin. */
export const DIRECTORY_OPTIONS: readonly OptionSpec[] = [CONF_DIR_OPTION, PLUGIN_DIR_OPTION, CACHE_DIR_OPTION];

export const PLUGIN_CALL_OPTIONS: readonly OptionSpec[] = RUNTIME_OPTIONS.filter(({ name }) =>
  name !== JSON_OPTION.name
);

/** Commands list what they can, and fail afterwards. */
export function countProblems(): { report(message: string): void; exitStatus(): number } {
  let count = 0;
  return {
    report(message) {
      count++;
      log(message);
    },
    exitStatus: () => count === 0 ? 0 : 1,
  };
}
