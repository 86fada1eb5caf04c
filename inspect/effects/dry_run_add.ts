import { currentNetns, openNetns } from "../../ffi/netns/netns.ts";
import { CniError, Code } from "../../spec/error.ts";
import { findModel } from "../../plugins/registry.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import type { Result } from "../../spec/result.ts";
import type { AddRuntimeConf } from "../../runtime/add.ts";
import type { Runtime } from "../../runtime/runtime.ts";
import { type DryRun, dryRun } from "./dry_run.ts";
import { copyHost } from "./host_copy.ts";

export interface DryRunOfAdd extends DryRun {
  /** Addresses are those that it would get. Names of veth pairs and MAC addresses differ each time. */
  readonly result?: Result;
}

/**
 * Carries out an ADD in copies of the host and of the container, see {@linkcode dryRun}.
 *
 * @throws {CniError} if it needs a device of the host
 */
export function dryRunOfAdd(runtime: Runtime, network: NetworkConfigList, parameters: AddRuntimeConf): DryRunOfAdd {
  const plugin = network.plugins.find(({ type }) => findModel(type)?.takesDevice);
  if (plugin) {
    throw new CniError(Code.NotAvailable, `Cannot do a dry run of an ADD by plugin "${plugin.type}"`, {
      details: "it moves a device of the host, and a copy of the host does not have the device",
    });
  }
  const { netns: path } = parameters;
  using host = currentNetns();
  // Opened before the thread is in the copy.
  const sockDiag = host.diag;
  using original = openNetns(path);
  using copy = copyHost(original, { network, parameters });
  let result: Result | undefined;
  const { notes, ...found } = copy.host.run(() =>
    dryRun(
      () => {
        result = runtime.add(network, { ...parameters, netns: copy.container.path });
      },
      { container: { copy: copy.container.path, path }, sockDiag },
    )
  );
  const dry: DryRunOfAdd = { ...found, ...result && { result }, notes: [...copy.notes, ...notes] };
  return withOriginalPath(dry, copy.container.path, path);
}

/** The copy's path is in results, and in what programs would get. */
function withOriginalPath(dry: DryRunOfAdd, copy: string, path: string): DryRunOfAdd {
  const { failure, effects, result, notes } = dry;
  const replace = <T>(value: T): T => JSON.parse(JSON.stringify(value).replaceAll(copy, path));
  return {
    notes,
    effects: replace(effects),
    ...result && { result: replace(result) },
    ...failure !== undefined && { failure: failure instanceof CniError ? withMessage(failure, copy, path) : failure },
  };
}

function withMessage({ code, message, details, cause }: CniError, copy: string, path: string): CniError {
  const text = details?.replaceAll(copy, path);
  return new CniError(code, message.replaceAll(copy, path), { ...text && { details: text }, cause });
}
