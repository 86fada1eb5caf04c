/** Removes a network, as a list of small effects. */
import { removeFile } from "../ffi/sys/file.ts";
import { findStat } from "../ffi/sys/stat.ts";
import type {
  NetworkOfFile,
  NetworkRemoval,
  OtherNetwork,
  RemovalEffect,
  RemovalStep,
} from "../plugins/lib/model/removal.ts";
import { findModel } from "../plugins/registry.ts";
import { CniError, Code } from "../spec/error.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import type { NetworkAttachment } from "../runtime/attachments.ts";
import type { Runtime } from "../runtime/runtime.ts";
import { type ConfiguredNetwork, readNetworkFiles } from "./network_files.ts";
import { reservationsOf } from "./reservations.ts";
import { listAttachedUsers, listNetworkUsers, type NetworkUser } from "./users.ts";

export interface RemovalContext {
  readonly runtime: Runtime;
  readonly directory: string;
  log(message: string): void;
}

/** One network, as `cni network rm --json` prints it. */
export interface RemovedNetwork {
  readonly name: string;
  readonly steps: readonly RemovalStep[];
  /** Why the rest was not done, or with `force` what was not. */
  readonly failure?: CniError;
}

/** Takes each network when it is done, also if it failed halfway. */
export type RemovalReport = (removed: RemovedNetwork) => void;

export class NetworkInUseError extends CniError {
  constructor(network: string, users: readonly NetworkUser[]) {
    super(Code.InvalidConfig, `Cannot remove network "${network}": ${describeUsers(users)}`, {
      details:
        `detach them with "cni run del ${network} --container-id ID" or their engine, or all with "cni network rm ${network} --force"`,
    });
  }
}

/**
 * @param force whether to detach containers, and to go on after a failure, such as of a plugin that is missing
 * @throws {NetworkInUseError} before any change, if a container uses one of them and `force` is false
 * @throws {CniError} the first failure
 */
export function removeNetworks(
  networks: readonly ConfiguredNetwork[],
  context: RemovalContext,
  force: boolean,
  report: RemovalReport,
): void {
  if (!force) { for (const network of networks) requireUnusedNetwork(network, context); }
  const failures: CniError[] = [];
  for (const network of networks) {
    const { failure } = removeNetwork(network, context, force, report);
    if (!failure) continue;
    failures.push(failure);
    if (!force) break;
  }
  const [first, ...others] = failures;
  for (const { message } of others) context.log(message);
  if (first) throw first;
}

/** As {@linkcode removeNetworks}; a failure is returned. */
export function removeNetwork(
  network: ConfiguredNetwork,
  context: RemovalContext,
  force: boolean,
  report: RemovalReport,
): RemovedNetwork {
  const steps: RemovalStep[] = [];
  const { name } = network.list;
  const failure = failureOf(() => carryOutPlan(network, context, force, (step) => steps.push(step)));
  if (!failure && network.origin === "built-in") {
    context.log(`The built-in network "${name}" itself stays: it is in no file`);
  }
  const removed = { name, steps, ...failure && { failure } };
  report(removed);
  return removed;
}

export function failureOf(call: () => void): CniError | undefined {
  try {
    call();
    return undefined;
  } catch (error) {
    return CniError.from(error);
  }
}

function carryOutPlan(
  network: ConfiguredNetwork,
  context: RemovalContext,
  force: boolean,
  report: (step: RemovalStep) => void,
): void {
  const attachments = attachmentsOf(network, context);
  // A container may have come while other networks were removed.
  if (!force) requireUnused(network, attachments);
  carryOutRemoval(planNetworkRemoval(network, attachments, context, force), force, report);
}

function attachmentsOf({ list }: ConfiguredNetwork, { runtime }: RemovalContext): NetworkAttachment[] {
  return runtime.attachments(list.name);
}

export function requireUnusedNetwork(network: ConfiguredNetwork, context: RemovalContext): void {
  requireUnused(network, attachmentsOf(network, context));
}

function requireUnused({ list }: ConfiguredNetwork, attachments: readonly NetworkAttachment[]): void {
  const users = listNetworkUsersOrHint(list, attachments);
  if (users.length > 0) throw new NetworkInUseError(list.name, users);
}

/** @throws {CniError} if a configuration that is wrong does not tell its users */
function listNetworkUsersOrHint(...network: Parameters<typeof listNetworkUsers>): NetworkUser[] {
  try {
    return listNetworkUsers(...network);
  } catch (error) {
    throw withForceHint(error);
  }
}

/** For a failure that keeps a network only without `force`. */
function withForceHint(cause: unknown): CniError {
  const { code, message, details = "" } = CniError.from(cause);
  const hint = `"cni network rm --force" removes the rest all the same`;
  return new CniError(code, message, { details: details === "" ? hint : `${details}; ${hint}`, cause });
}

const MAX_NAMED_USERS = 5;

function describeUsers(users: readonly NetworkUser[]): string {
  const named = users.slice(0, MAX_NAMED_USERS).map(({ containerId, ifname, evidence }) =>
    `container "${containerId}" uses it (${ifname === undefined ? "" : `${ifname}, `}${evidence})`
  );
  const more = users.length - named.length;
  return [...named, ...more > 0 ? [`and ${more} more`] : []].join("; ");
}

/**
 * The effects of removing a network, in order. The file goes last: after a failure, the removal can be repeated.
 *
 * @param attachments of the network; they are detached
 */
function planNetworkRemoval(
  network: ConfiguredNetwork,
  attachments: readonly NetworkAttachment[],
  context: RemovalContext,
  force: boolean,
): RemovalEffect[] {
  let others: OtherNetwork[] | undefined;
  const removal: NetworkRemoval = {
    ...describeNetwork(network.list),
    // Many networks are often removed at once, most of them never used: those share nothing.
    readOthers: () => others ??= readOtherNetworks(network, context),
    log: context.log,
  };
  return [
    ...attachments.map((attachment) => detachEffect(network, attachment, context)),
    cleanEffect(network, context, force),
    ...pluginTypesOf(network.list).flatMap((type) => planPluginRemoval(type, removal)),
    ...network.file === undefined ? [] : [removeFileEffect(network.file)],
  ];
}

/** What two networks share stays. */
function readOtherNetworks(network: ConfiguredNetwork, { directory }: RemovalContext): OtherNetwork[] {
  const identity = network.file === undefined ? undefined : findStat(network.file)?.identity;
  const files = readNetworkFiles(directory).filter(({ file }) =>
    identity === undefined || findStat(file)?.identity !== identity
  );
  return files.flatMap(({ file, list }) => list ? [{ ...describeNetwork(list), file }] : []);
}

function describeNetwork(list: NetworkConfigList): NetworkOfFile {
  return {
    list,
    gateways: () => reservationsOf(list).flatMap((each) => each.pools()).flatMap(({ gateways }) => gateways),
  };
}

function pluginTypesOf({ plugins }: NetworkConfigList): readonly string[] {
  const delegates = plugins.flatMap(({ ipamType }) => ipamType ?? []);
  return [...new Set([...plugins.map(({ type }) => type), ...delegates])];
}

/** A mistake in the configuration must not keep the rest. */
function planPluginRemoval(type: string, removal: NetworkRemoval): readonly RemovalEffect[] {
  try {
    return findModel(type)?.planRemoval?.(removal) ?? [];
  } catch (error) {
    removal.log(`What plugin "${type}" made stays: ${CniError.from(error).message}`);
    return [];
  }
}

function detachEffect(
  { list }: ConfiguredNetwork,
  { containerId, ifname }: NetworkAttachment,
  { runtime }: RemovalContext,
): RemovalEffect {
  const target = `"${ifname}" of container "${containerId}"`;
  return {
    action: "detach",
    target,
    description: `detach ${target} from network "${list.name}"`,
    carryOut() {
      runtime.del(list, { containerId, ifname });
      return true;
    },
  };
}

/** Removes also what containers left of which the cache knows nothing. */
function cleanEffect(network: ConfiguredNetwork, context: RemovalContext, force: boolean): RemovalEffect {
  const { list } = network;
  return {
    action: "clean",
    target: list.name,
    description: `remove what is left of network "${list.name}": rules, links, reserved addresses`,
    carryOut() {
      // It would detach a container that came after the plan.
      const users = force ? [] : listAttachedUsers(attachmentsOf(network, context));
      if (users.length > 0) throw new NetworkInUseError(list.name, users);
      context.runtime.gc(list, []);
      return true;
    },
  };
}

function removeFileEffect(file: string): RemovalEffect {
  return {
    action: "remove-file",
    target: file,
    description: `remove the configuration "${file}"`,
    carryOut() {
      removeFile(file);
      return true;
    },
  };
}

/** @param report told of each step that was carried out @throws the first failure */
function carryOutRemoval(
  effects: readonly RemovalEffect[],
  force: boolean,
  report: (step: RemovalStep) => void,
): void {
  const failures: unknown[] = [];
  for (const { carryOut, ...step } of effects) {
    try {
      if (carryOut()) report(step);
    } catch (error) {
      failures.push(error);
      if (!force) break;
    }
  }
  if (failures.length === 0) return;
  const [failure] = failures;
  if (force || failure instanceof NetworkInUseError) throw failure;
  throw withForceHint(failure);
}
