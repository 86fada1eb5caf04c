/** The network's file for engines, with this node's ranges and MTU, and the MTU of pods that run. @module */
import type { Cidr } from "../ffi/address.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { findText } from "../ffi/sys/file.ts";
import { findStat } from "../ffi/sys/stat.ts";
import { installNetworkFile, needsMtu, type NetworkFileInstall, prepareNetworkFile } from "../networks/engine_file.ts";
import { needsRanges } from "../networks/lint/given_ranges.ts";
import { listConfFiles } from "../runtime/load.ts";
import { sortedByBytes } from "../runtime/sort_by_bytes.ts";
import { prepareBridgedServices } from "../networks/bridged_services.ts";
import { CniError, ConfigError } from "../spec/error.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import { findValue } from "../spec/schema.ts";
import { hasPods, listPods, type NodePod } from "./pods.ts";

export interface EngineNetworkOptions {
  readonly network: { readonly fileName: string; readonly text: string };
  readonly confDirectory: string;
  readonly pluginDirectories: readonly string[];
  readonly cacheDirectories: readonly string[];
  log(message: string): void;
}

/** A node may be mended meanwhile, as by loading a module. */
const RETRY_MS = 30_000;
/** An ADD that has read the file before it changed ends within this time: it may wait half a minute for the ruleset. */
const LATE_ADDS_MS = 35_000;
const LATE_ADDS_INTERVAL_MS = 5000;

export class EngineNetwork {
  readonly #options: EngineNetworkOptions;
  /** Where engines look for it. */
  readonly #path: string;
  /** `undefined` if the file cannot be read: it is refused then. */
  readonly name: string | undefined;
  /** Whether pods have the MTU that is offered: a file may have one of its own, also for `tuning`. */
  readonly givesMtu: boolean;
  /** Whether plugins masquerade by themselves. */
  readonly masquerades: boolean;
  /** Whether pods have addresses of the ranges that are offered: a file may have its own. */
  readonly givesRanges: boolean;
  #offered = "";
  #nextTry = 0;
  #waitsForPods = false;
  #lateAddsUntil = -Infinity;
  #nextLateAdds = Infinity;
  problem: string | undefined;
  isInstalled = false;

  constructor(options: EngineNetworkOptions) {
    this.#options = options;
    const { network: { fileName, text }, confDirectory } = options;
    this.#path = `${confDirectory}/${fileName}`;
    const list = findList(text, fileName);
    this.name = list?.name;
    const valuesOf = (key: string) => list?.plugins.map(({ raw }) => findValue(raw, key)) ?? [];
    this.givesMtu = (list?.plugins.some(needsMtu) ?? false) && valuesOf("mtu").every((mtu) => mtu === undefined);
    this.givesRanges = list?.plugins.some(needsRanges) ?? false;
    this.masquerades = valuesOf("ipMasq").includes(true);
  }

  /**
   * Does nothing while engines have this already.
   *
   * @param mtu absent: pods keep that of the kernel
   * @returns whether to look for pods whose ADD was late: they have what was offered before
   */
  offer(ranges: readonly Cidr[], mtu: number | undefined): boolean {
    const now = performance.now();
    const offered = `${ranges.join()} ${mtu}`;
    const isAnother = offered !== this.#offered;
    const isDone = this.problem === undefined && findStat(this.#path) !== undefined;
    if (isAnother || !isDone && (now >= this.#nextTry || this.#isReady())) {
      this.#nextTry = now + RETRY_MS;
      this.#offered = offered;
      const isWritten = this.#install(ranges, mtu);
      if (isAnother || isWritten) this.#expectLateAdds(now);
    }
    if (now < this.#nextLateAdds) return false;
    this.#nextLateAdds = now < this.#lateAddsUntil ? now + LATE_ADDS_INTERVAL_MS : Infinity;
    return true;
  }

  /** Whether nothing has to be mended: the file is gone, or the last pod that was in the way. */
  #isReady(): boolean {
    return this.problem === undefined || this.#waitsForPods && !this.#hasPods();
  }

  pods(): readonly NodePod[] {
    return this.name === undefined ? [] : listPods(this.#options.cacheDirectories, this.name);
  }

  #hasPods(): boolean {
    return this.name !== undefined && hasPods(this.#options.cacheDirectories, this.name);
  }

  #expectLateAdds(now: number): void {
    this.#nextLateAdds = now;
    this.#lateAddsUntil = now + LATE_ADDS_MS;
  }

  /** @returns whether engines have another file now */
  #install(ranges: readonly Cidr[], mtu: number | undefined): boolean {
    const { network: { fileName, text }, confDirectory: directory, pluginDirectories, log } = this.#options;
    let isWritten = false;
    this.#waitsForPods = false;
    try {
      const prepared = prepareNetworkFile({
        source: fileName,
        text,
        directory,
        pluginDirectories,
        ranges,
        ...mtu !== undefined && { mtu },
        log,
      });
      const obstacle = this.#findObstacle(prepared);
      if (obstacle === undefined) {
        prepareBridgedServices(prepared)();
        isWritten = installNetworkFile(prepared);
        if (isWritten) log(`Engines have the network "${prepared.path}"`);
        this.problem = undefined;
      } else {
        this.#waitsForPods = true;
        this.#note(obstacle);
      }
      this.isInstalled = true;
    } catch (error) {
      const isRefused = error instanceof CniError || error instanceof ConfigError || error instanceof SyntaxError ||
        error instanceof SystemError;
      if (!isRefused) throw error;
      const details = error instanceof CniError && error.details ? ` (${error.details})` : "";
      this.#note(`${error.message}${details}`);
    }
    return isWritten;
  }

  /** What hides the network from engines. */
  shadow(): string | undefined {
    // Engines read no JSON with comments.
    const files = listConfFiles(this.#options.confDirectory).filter((file) => !file.endsWith(".jsonc"));
    const [first] = sortedByBytes(files);
    if (!this.isInstalled || first === undefined || first === this.#path) return undefined;
    return `Engines use "${first}", which sorts before "${this.#path}": drain this node, and remove that network`;
  }

  #note(problem: string): void {
    if (problem !== this.problem) this.#options.log(problem);
    this.problem = problem;
  }

  /** New pods on a veth pair would not reach those on a bridge with the same addresses, and the other way round. */
  #findObstacle({ path, text }: NetworkFileInstall): string | undefined {
    const present = findText(path);
    const types = [present ?? text, text].map((each) => parseNetworkConfigList(each, path).plugins[0]?.type);
    if (types[0] === types[1]) return undefined;
    const count = this.pods().length;
    if (count === 0) return undefined;
    return `"${path}" goes on with "${types[0]}" until its ${count} pods have ended: drain this node to get "${
      types[1]
    }"`;
  }
}

function findList(text: string, source: string): NetworkConfigList | undefined {
  try {
    return parseNetworkConfigList(text, source);
  } catch (error) {
    if (error instanceof ConfigError || error instanceof SyntaxError) return undefined;
    throw error;
  }
}
