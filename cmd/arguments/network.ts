import type { ArgumentSpec } from "../command.ts";

export const NETWORKS_ARGUMENT: ArgumentSpec = {
  name: "NETWORK",
  help: 'names in the configuration directory, or paths (with a "/")',
  several: true,
};
