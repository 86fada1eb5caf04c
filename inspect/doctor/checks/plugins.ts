import { CniError } from "../../../spec/error.ts";
import { callPlugin, locatePlugin } from "../../../runtime/call_plugin.ts";
import { abbreviate, advise, broken, type Finding, ok, warning } from "../finding.ts";
import { isBuiltin } from "../../../runtime/call_plugin.ts";
import { containerPlace, describeContainer, type ExaminedContainer, type Subject } from "../subject.ts";
import { findModel, pluginNames } from "../../../plugins/registry.ts";
import { suggestion } from "../../../spec/suggest.ts";
import { remedyForInconclusive } from "../inconclusive.ts";
import { atLeast, introducedIn } from "../../../spec/version.ts";
import { findLackingEngines, type LackingEngine } from "../../../networks/lint/engine_directories.ts";
import { lintFiles } from "../../../networks/lint/lint.ts";
import { missingRule } from "../missing_rule.ts";
import { CheckFailedError } from "../../../plugins/lib/protocol/check_failed.ts";
import { hasClusterMtu } from "./cluster.ts";
import { reattach } from "../reattach.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import type { NetworkConfigList, PluginEntry } from "../../../spec/network_config_list.ts";

export function checkPlugins({ runtime, network }: Subject): Finding[] {
  const types = network.plugins.flatMap(({ type, ipamType }) => ipamType ? [type, ipamType] : [type]);
  const found = types.map((type) => {
    try {
      const location = locatePlugin(runtime, network, { type } as PluginEntry);
      return "program" in location
        ? { type, at: location.program, isShadow: location.shadowsBuiltin }
        : { type, at: "built in", isShadow: false };
    } catch (error) {
      const { message, details } = CniError.from(error);
      return {
        type,
        problem: broken(`plugin "${type}": ${message}`, advise(missingPluginMend(network, type, details))),
      };
    }
  });
  const problems = found.flatMap(({ problem }) => problem ?? []);
  const shadows = describeShadows(found.flatMap(({ at, isShadow }) => isShadow && at !== undefined ? [at] : []));
  const lacking = findLackingEngines(network.source ?? "", [...new Set(types)]).map(describeLacking);
  if (problems.length + shadows.length + lacking.length > 0) return [...problems, ...shadows, ...lacking];
  return [ok(`plugins: ${found.map(({ type, at }) => `${type} (${at})`).join(", ")}`)];
}

function describeShadows(programs: readonly string[]): Finding[] {
  const byDirectory = Map.groupBy(new Set(programs), (path) => path.slice(0, path.lastIndexOf("/")));
  return [...byDirectory].map(([directory, paths]) => {
    const names = paths.map((path) => `"${path.slice(directory.length + 1)}"`).join(", ");
    const what = `programs in ${directory} are called for ${names}, not the built-in plugins`;
    return warning(what, advise("to use the built-in plugins", shellCommand(["cni", "install", directory, "--force"])));
  });
}

function describeLacking({ configuration, directories, types }: LackingEngine): Finding {
  const names = types.map((type) => `"${type}"`).join(", ");
  const what = `${configuration} names ${directories.join(", ")} for plugins, which has no ${names}`;
  return warning(what, advise("name a directory there that has them, such as /opt/cni/bin, and restart the engine"));
}

function missingPluginMend({ source = "the configuration" }: Subject["network"], type: string, details = ""): string {
  const hint = suggestion(type, pluginNames());
  const found = details && `; ${details}`;
  return `correct "type" in ${source}, or install the plugin${found.endsWith(hint) ? found : hint + found}`;
}

/** What `cni lint` finds in the file, and containers that have not got what changed. */
export function checkConfiguration(subject: Subject): Finding[] {
  const old = subject.containers.filter((each) => each.hasOldConfiguration && !hasFollowed(subject, each));
  return [
    ...lintSource(subject),
    ...old.map((container) =>
      warning(
        `the configuration has changed since ${describeContainer(container)} was attached`,
        reattach(container.attachment),
      )
    ),
  ];
}

/** The part `cluster` gives containers that run another MTU, too. */
function hasFollowed(subject: Subject, { addedWith }: ExaminedContainer): boolean {
  const withoutMtu = ({ plugins }: NetworkConfigList) => plugins.map(({ raw }) => ({ ...raw, mtu: 0 }));
  return addedWith !== undefined && hasClusterMtu(subject) &&
    Bun.deepEquals(withoutMtu(addedWith), withoutMtu(subject.network));
}

/** Rules whose subjects have checks of their own. */
const EXAMINED_RULES = ["unknown-plugin", "route-overlap", "foreign-route"];

/** Standard input has no file to check. */
export function lintSource({ runtime: { pluginDirectories }, network: { source = "" } }: Subject): Finding[] {
  if (!source.startsWith("/")) return [];
  return lintFiles([source], { pluginDirectories, disabled: EXAMINED_RULES }).problems.filter(({ severity }) =>
    severity !== "note"
  )
    .map(({ line, column, message, suggestion, severity }) =>
      (severity === "error" ? broken : warning)(
        `${source}:${line}:${column} ${message}`,
        suggestion === undefined ? shellCommand(["cni", "lint", source]) : advise(suggestion),
      )
    );
}

/** What plugins report of links below them, such as a master that is down. Networks of the host have checks of their own. */
export function checkDiagnoses({ runtime, network, containers }: Subject): Finding[] {
  return network.plugins.filter(({ type }) => !findModel(type)?.network).flatMap((plugin) => {
    if (!isBuiltin(runtime, network, plugin)) return [];
    const parameters = containers.length > 0 ? containers.map(({ attachment }) => attachment) : [undefined];
    const problems = parameters.flatMap((attachment) =>
      callPlugin(runtime, network, plugin, { command: "DIAGNOSE", ...attachment && { parameters: attachment } })
        .problems ?? []
    );
    return [...new Set(problems)].map((problem) =>
      broken(`plugin "${plugin.type}": ${problem}`, advise("see what it names"))
    );
  });
}

/** What the plugins' CHECK finds: a net below the checks with names. Programs are not run. */
export function checkByPlugins(subject: Subject): Finding[] {
  const { runtime, network, containers } = subject;
  if (network.disableCheck || !atLeast(network.cniVersion, introducedIn.CHECK)) return [];
  const succeeded: string[] = [];
  const problems = containers.flatMap((container) => {
    const { attachment, addedWith } = container;
    if (!attachment.result || !addedWith) return [];
    try {
      const list = hasFollowed(subject, container) ? network : addedWith;
      for (const plugin of list.plugins) {
        if (!isBuiltin(runtime, list, plugin)) continue;
        callPlugin(runtime, list, plugin, {
          command: "CHECK",
          parameters: attachment,
          prevResult: attachment.result,
        });
      }
      succeeded.push(containerPlace(attachment));
      return [];
    } catch (error) {
      const { message, details } = CniError.from(error);
      const what = details ? `${message} (${details})` : message;
      const remedy = remedyForInconclusive(error, network.name);
      if (remedy !== undefined) {
        return [warning(`CHECK was not possible for ${containerPlace(attachment)}: ${what}`, remedy)];
      }
      if (error instanceof CheckFailedError && error.isRestorable) return [missingRule(network, what)];
      return [broken(what, reattach(attachment))];
    }
  });
  const success = `CHECK of all built-in plugins succeeds for ${abbreviate(succeeded)}`;
  return succeeded.length === 0 ? problems : [ok(success), ...problems];
}
