import * as link from "../ffi/route/link.ts";
import { type LinkLoss, openLinkMonitor } from "../ffi/route/link_monitor.ts";
import { CniError, ConfigError } from "../spec/error.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { elsewhereTest } from "../runtime/attached_elsewhere.ts";
import { listCacheEntries } from "../runtime/cache.ts";
import { parseCachedResult } from "../runtime/cached_result.ts";
import { describeFailure } from "../runtime/call_plugin.ts";
import type { RuntimeContext } from "../runtime/context.ts";
import { checkLinks } from "../inspect/doctor/checks/links.ts";
import { listWantedProblems } from "../inspect/doctor/checks/wanted_by_plugins.ts";
import type { Finding, Repair } from "../inspect/doctor/finding.ts";
import { applyRepair } from "../inspect/doctor/repair.ts";
import { lookUpSubject, type Subject } from "../inspect/doctor/subject.ts";
import type { WithEachCache } from "./each_cache.ts";
import { Fight } from "./fight.ts";
import { GrowingPause } from "./growing_pause.ts";
import type { HealingLimits } from "./limits.ts";

export interface LinkCareOptions {
  readonly healLinks: boolean;
  readonly limits: HealingLimits;
  log(message: string): void;
  onRemoved(): void;
  onProblem(): void;
  /** Told when something keeps removing what is mended. */
  onPause(): void;
}

const GATEWAY_KINDS: readonly (string | undefined)[] = ["bridge", "vlan", "veth"];

/**
 * Notices bridges that lost their address, and ports that lost their bridge.
 *
 * Links that go themselves are no reason to look: each DEL removes some.
 */
export class LinkCare implements Disposable {
  readonly #options: LinkCareOptions;
  readonly #monitor;
  readonly #losers = new Map<number, LinkLoss["kind"]>();
  #isLookNeeded = true;
  #stormSince: number | undefined;
  #nextLook = -Infinity;
  readonly #fight: Fight;
  readonly #retryPause: GrowingPause;
  #knownProblems = new Set<string>();
  #knownFailures = new Set<string>();

  constructor(options: LinkCareOptions) {
    this.#options = options;
    this.#fight = new Fight(options.limits);
    this.#retryPause = new GrowingPause(options.limits.firstRetryMs, options.limits.longestRetryMs);
    this.#monitor = openLinkMonitor(options.limits.bufferBytes);
  }

  get fd(): number {
    return this.#monitor.fd;
  }

  get nextLook(): number {
    return this.#nextLook;
  }

  read(): void {
    let isLoss = false;
    const isComplete = this.#monitor.read(({ kind, index }) => {
      if (kind === "removed") {
        this.#losers.delete(index);
        this.#options.onRemoved();
      } else {
        this.#losers.set(index, kind);
        isLoss = true;
      }
    });
    if (!isComplete) this.#isLookNeeded = isLoss = true;
    if (this.#losers.size === 0 && !this.#isLookNeeded) this.#rest();
    else if (isLoss) {
      const { quietMs, longestStormMs } = this.#options.limits;
      const now = performance.now();
      if (this.#nextLook === Infinity) this.#fight.noteLoss(now);
      this.#stormSince ??= now;
      this.#nextLook = Math.max(this.#fight.pausedUntil, Math.min(now + quietMs, this.#stormSince + longestStormMs));
    }
  }

  /** Call it when {@linkcode nextLook} is over, for all caches. */
  look(withEachCache: WithEachCache): void {
    const losers = [...this.#losers];
    const isNeeded = this.#isLookNeeded;
    this.#losers.clear();
    this.#isLookNeeded = false;
    this.#rest();
    const { results: problems, hasFailed } = withEachCache((runtime) => {
      const matters = isNeeded || losers.some(([index, kind]) => mayMatter(runtime, index, kind));
      return matters ? listProblems(runtime) : undefined;
    });
    const isMended = problems.every((found) => found === undefined) ||
      this.#handleProblems(problems.flatMap((some) => some ?? []), withEachCache);
    if (isMended && !hasFailed) this.#retryPause.reset();
    else this.#lookAgain();
  }

  /** @returns whether all was mended that can be */
  #handleProblems(found: readonly LinkProblem[], withEachCache: WithEachCache): boolean {
    const { healLinks, log, onProblem } = this.#options;
    for (const { what } of found) {
      if (this.#knownProblems.has(what)) continue;
      onProblem();
      log(what);
    }
    this.#knownProblems = new Set(found.map(({ what }) => what));
    this.#knownFailures = this.#knownFailures.intersection(this.#knownProblems);
    if (!healLinks) return true;
    const mendable = found.filter(({ repair }) => repair);
    if (mendable.length === 0) return true;
    const { results } = withEachCache((runtime) =>
      this.#mend(runtime, mendable.filter(({ cache }) => cache === runtime.cacheDirectory))
    );
    const mended = results.reduce((sum, count) => sum + count, 0);
    if (mended > 0) this.#noteRound();
    return mended === mendable.length;
  }

  #lookAgain(): void {
    this.#isLookNeeded = true;
    this.#nextLook = Math.max(this.#fight.pausedUntil, performance.now() + this.#retryPause.next());
  }

  [Symbol.dispose](): void {
    this.#monitor[Symbol.dispose]();
  }

  #rest(): void {
    this.#nextLook = Infinity;
    this.#stormSince = undefined;
  }

  #mend(runtime: RuntimeContext, problems: readonly LinkProblem[]): number {
    const mended = problems.filter(({ what, repair }) => {
      if (!repair) return false;
      try {
        applyRepair(runtime, repair);
        return true;
      } catch (error) {
        if (!this.#knownFailures.has(what)) this.#options.log(`Cannot mend: ${what}: ${describeFailure(error)}`);
        this.#knownFailures.add(what);
        return false;
      }
    });
    for (const { what } of mended) {
      this.#knownProblems.delete(what);
      this.#knownFailures.delete(what);
      this.#options.log(`Mended: ${what}`);
    }
    return mended.length;
  }

  #noteRound(): void {
    const pauseMs = this.#fight.noteRound(performance.now());
    if (pauseMs === 0) return;
    const { log, onPause } = this.#options;
    onPause();
    log(
      `Links lost ${this.#fight.rounds} times in a row what was mended: the next time it is mended after ${
        pauseMs / 1000
      } s`,
    );
  }
}

interface LinkProblem {
  readonly cache: string;
  /** `gateway address 10.1.0.1/16 is missing on "cni0"` */
  readonly what: string;
  readonly repair: Repair | undefined;
}

function mayMatter({ hostContext: { host } }: RuntimeContext, index: number, kind: LinkLoss["kind"]): boolean {
  const found = link.find(host.route, index);
  if (!found) return false;
  return kind === "left-bridge" || GATEWAY_KINDS.includes(found.info?.kind);
}

function listProblems(runtime: RuntimeContext): LinkProblem[] {
  const isElsewhere = elsewhereTest(runtime.hostContext.host);
  const entries = listCacheEntries(runtime.cacheDirectory).filter((entry) => {
    const result = parseCachedResult(entry);
    return result === undefined || !isElsewhere(result);
  });
  const configs = new Map(entries.flatMap(({ network, config }) => config === "" ? [] : [[network, config]]));
  return [...configs].flatMap(([network, config]) => {
    using resources = new DisposableStack();
    try {
      const list = parseNetworkConfigList(config, `the configuration of network "${network}"`);
      const subject = lookUpSubject({ ...runtime, log: () => {} }, list, undefined, resources);
      return listLost(subject).map(({ what, repair }) => ({
        cache: runtime.cacheDirectory,
        what: `Network "${network}": ${what}`,
        repair,
      }));
    } catch (error) {
      if (error instanceof ConfigError || error instanceof CniError) return [];
      throw error;
    }
  });
}

/** Only of the host: what is in containers is theirs. Nothing but new ADDs can mend a missing bridge. */
function listLost(subject: Subject): Pick<Finding, "what" | "repair">[] {
  const lost = listWantedProblems(subject).filter(({ difference: { kind, wanted } }) =>
    wanted.place === "host" && (kind === "link" || kind === "address")
  );
  const ports = checkLinks(subject).filter(({ repair }) => repair?.kind === "bridge-port");
  return [...ports, ...lost.map(({ finding }) => finding)];
}
