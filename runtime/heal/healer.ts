import { elsewhereTest } from "../attached_elsewhere.ts";
import { describeFailure } from "../call_plugin.ts";
import type { RuntimeContext } from "../context.ts";
import type { CacheEntry } from "../cache.ts";
import { describeAttachment } from "../resolve_attachment.ts";
import { restoreAttachments, type RestoreReport } from "../restore.ts";
import { type RuntimeOptions, withRuntimeContext } from "../runtime.ts";
import { hasPlugin } from "../../plugins/registry.ts";
import { currentNetns } from "../../ffi/netns.ts";
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { type Committer, openRulesetMonitor, type RulesetCommit } from "../../ffi/nft/ruleset_monitor.ts";
import type { Result } from "../../spec/result.ts";
import { restoreCopied } from "./copied_restore.ts";
import { describeCommitters, describeRestore, type Restored } from "./describe_restore.ts";
import { FirewalldWatch } from "./firewalld_watch.ts";
import { Fight } from "./fight.ts";
import { HEALING_LIMITS, type HealingLimits } from "./limits.ts";
import { LinkCare } from "./link_care.ts";
import { isOwnProgram } from "./own_program.ts";
import { ReleasedAttachments } from "./released_attachments.ts";
import { RevivedAttachments } from "./revived_attachments.ts";
import { RulesetCopy } from "./ruleset_copy.ts";
import { isInOurTable, mayBeLoss } from "./ruleset_losses.ts";

/** What is counted: rules put back, pauses in a fight, bridges and ports that lost something. */
export type HealingCounter = "restores" | "backoffs" | "linkProblems";

export interface HealerOptions extends Pick<RuntimeOptions, "env" | "pluginDirectories"> {
  /** Each with the attachments of one runtime or engine. */
  readonly cacheDirectories: readonly string[];
  /** Whether to give bridges their addresses again, and ports their bridges. Else, they are only reported. */
  readonly healLinks: boolean;
  readonly limits?: HealingLimits;
  log(message: string): void;
  count(counter: HealingCounter): void;
}

const UNWATCHED = "a time without this server";
const MAX_CAUSES = 100;
const LOST = "more changes than the kernel could report";

/**
 * Puts back what attachments lose, in the thread's network namespace. It waits for nothing: the caller polls.
 *
 * Changes by this program never lead to a look. Others do if they remove something that may be an attachment's. The
 * look itself compares with the kernel's state.
 */
export class Healer implements Disposable {
  readonly #options: HealerOptions;
  readonly #limits: HealingLimits;
  readonly #ruleset;
  readonly #firewalld: FirewalldWatch;
  readonly #links: LinkCare;
  readonly #copy = new RulesetCopy();
  readonly #released = new ReleasedAttachments();
  readonly #revived = new RevivedAttachments();
  readonly #fight: Fight;
  /** Causes of the next look. Times are those of `performance.now()`. */
  #causes: (string | Committer)[] = [UNWATCHED];
  #stormSince: number | undefined;
  #nextLook = -Infinity;
  #laterLooks: number[] = [];
  /** When to see whose result is gone. */
  #resultChecks: number[] = [];
  /** Failures that were logged, and that still last. */
  #knownFailures = new Set<string>();
  /** By directory. */
  readonly #knownCacheFailures = new Map<string, string>();
  /** Networks and plugins that were named. */
  readonly #knownSkipped = new Set<string>();

  constructor(options: HealerOptions) {
    this.#options = options;
    this.#limits = options.limits ?? HEALING_LIMITS;
    this.#fight = new Fight(this.#limits);
    this.#ruleset = openRulesetMonitor(
      this.#limits.bufferBytes,
      (change) => isInOurTable(change) || mayBeLoss(change),
    );
    this.#links = new LinkCare({
      ...options,
      limits: this.#limits,
      onRemoved: () => this.#expectRemovedResults(),
      onProblem: () => options.count("linkProblems"),
      onPause: () => options.count("backoffs"),
    });
    this.#firewalld = new FirewalldWatch(options.env.DBUS_SYSTEM_BUS_ADDRESS);
  }

  get fds(): readonly number[] {
    return [this.#ruleset.fd, this.#links.fd, ...this.#firewalld.fds];
  }

  /** After how many milliseconds to call {@linkcode round} although nothing can be read. */
  timeoutMs(): number {
    return Math.max(
      0,
      Math.ceil(Math.min(this.#nextDue(), this.#links.nextLook, this.#firewalld.nextRetry) - performance.now()),
    );
  }

  /** Reads what the kernel tells, and does what is due. */
  round(): void {
    this.#read();
    const now = performance.now();
    if (this.#nextLook <= now) this.#lookAfterLoss();
    else if (this.#laterLooks.some((time) => time <= now)) this.#lookAgain();
    if (this.#resultChecks.some((time) => time <= now)) this.#checkResults();
    this.#links.read();
    if (this.#links.nextLook <= performance.now()) this.#links.look((call) => this.#withEachCache(call));
  }

  /** Whether an attachment has rules: also some that are missing, or that nobody has looked for. Links are mended if asked for. */
  hasWork(): boolean {
    const isLooking = this.#nextDue() < Infinity || this.#knownFailures.size > 0;
    return this.#options.healLinks || isLooking || !this.#copy.isKnown || this.#copy.size > 0;
  }

  [Symbol.dispose](): void {
    this.#firewalld[Symbol.dispose]();
    this.#links[Symbol.dispose]();
    this.#ruleset[Symbol.dispose]();
  }

  #nextDue(): number {
    return Math.min(this.#nextLook, ...this.#laterLooks, ...this.#resultChecks);
  }

  #read(): void {
    for (const cause of this.#firewalld.read()) this.#noteLoss(cause);
    // Each ADD has several commits.
    const known = new Map<string, boolean>();
    const isOwn = (committer: Committer) => {
      const id = `${committer.pid} ${committer.program}`;
      const found = known.get(id) ?? isOwnProgram(committer);
      known.set(id, found);
      return found;
    };
    const isComplete = this.#ruleset.read((commit) => this.#noteCommit(commit, isOwn));
    if (isComplete) return;
    this.#copy.forget();
    this.#noteLoss(LOST);
  }

  #noteCommit({ committer, changes }: RulesetCommit, isOwn: (committer: Committer) => boolean): void {
    if (committer.pid === process.pid) return changes.forEach((change) => this.#copy.note(change, true));
    // firewalld changes the ruleset when it starts.
    if (changes.length === 0) return this.#firewalld.connect();
    if (isOwn(committer)) {
      for (const change of changes) {
        this.#copy.note(change, false);
        this.#released.note(change);
        this.#revived.note(change);
      }
    } else {
      this.#firewalld.connect();
      if (changes.some(mayBeLoss)) this.#noteLoss(committer);
    }
  }

  #noteLoss(cause: string | Committer): void {
    const { quietMs, longestStormMs } = this.#limits;
    this.#copy.noteLoss();
    const now = performance.now();
    if (this.#causes.length < MAX_CAUSES) this.#causes.push(cause);
    if (this.#nextLook === Infinity) this.#fight.noteLoss(now);
    this.#stormSince ??= now;
    this.#nextLook = Math.max(this.#fight.pausedUntil, Math.min(now + quietMs, this.#stormSince + longestStormMs));
  }

  #lookAfterLoss(): void {
    if (!this.#copy.isKnown) this.#readCopy();
    const causes = describeCauses(this.#causes);
    this.#causes = [];
    this.#stormSince = undefined;
    this.#nextLook = Infinity;
    const restored = this.#restore();
    // Else the copy has what was lost meanwhile.
    if (this.#nextLook === Infinity) this.#readCopy();
    this.#expectRemovedResults();
    const line = describeRestore(restored, causes);
    const reports = restored.map(({ report }) => report);
    const failures = reports.flatMap(failuresOf);
    this.#reportSkipped(reports);
    if (line === undefined && failures.length === 0) return this.#reportFailures([]);
    this.#laterLooks = this.#limits.laterLooksMs.map((ms) => performance.now() + ms);
    if (line !== undefined) {
      this.#noteRestored(line);
      this.#noteRound(causes);
    }
    if (this.#laterLooks.length === 0) this.#reportFailures(failures);
  }

  /** ADDs and DELs that ran meanwhile have ended. */
  #lookAgain(): void {
    const now = performance.now();
    this.#laterLooks = this.#laterLooks.filter((time) => time > now);
    this.#checkResults();
    const isLast = this.#laterLooks.length === 0;
    if (isLast) this.#revived.clear();
    if (now < this.#fight.pausedUntil || this.#nextLook < Infinity) return;
    const restored = this.#restore();
    const line = describeRestore(restored, ["a command that ran meanwhile"]);
    if (line !== undefined) this.#noteRestored(line);
    if (isLast) this.#reportFailures(restored.flatMap(({ report }) => failuresOf(report)));
  }

  #restore(): Restored[] {
    return this.#withEachCache((runtime) => {
      const isElsewhere = elsewhereTest(runtime.hostContext.host);
      const copied = restoreCopied(runtime, this.#copy, {
        minAttachments: this.#limits.minCopied,
        maxWaitMs: this.#limits.lockWaitMs,
        isElsewhere,
        restoreByPlugins: (isWanted) => this.#restoreByPlugins(runtime, isElsewhere, isWanted),
        keepUnchanged: (entries) => {
          this.#read();
          return entries.filter((entry) => this.#copy.isCertain(entry) && !this.#released.has(entry));
        },
      });
      for (const entry of copied.entries) this.#revived.add(entry, runtime.cacheDirectory);
      return { copied, report: this.#restoreByPlugins(runtime, isElsewhere) };
    });
  }

  #restoreByPlugins(
    runtime: RuntimeContext,
    isElsewhere: (result: Result) => boolean,
    isWanted: (entry: CacheEntry) => boolean = () => true,
  ): RestoreReport {
    const entries = new Map<string, CacheEntry>();
    const report = restoreAttachments(runtime, undefined, {
      ...{ maxWaitMs: this.#limits.lockWaitMs, isWanted },
      // The copy is faster.
      isStopped: () => this.#copy.size >= this.#limits.minCopied && this.#nextLook <= performance.now(),
      findSkipReason: (entry, prevResult) => {
        entries.set(describeAttachment(entry), entry);
        this.#read();
        if (this.#released.has(entry)) return "its DEL has begun";
        return isElsewhere(prevResult) ? "its interfaces are not here" : undefined;
      },
    });
    for (const attachment of report.attachments) {
      const isRestored = attachment.plugins.some(({ restored }) => restored.length > 0);
      if (isRestored) this.#revived.add(entries.get(describeAttachment(attachment))!, runtime.cacheDirectory);
    }
    return report;
  }

  #readCopy(): void {
    using host = currentNetns();
    // Without nf_tables, each plugin fails by itself.
    ignoreSystemErrors(() => this.#copy.read(host.nft));
    const lookBefore = this.#nextLook;
    this.#read();
    // Something may have been lost before it was copied.
    if (this.#nextLook !== lookBefore) this.#copy.forget();
  }

  #withEachCache<T>(call: (runtime: RuntimeContext) => T): T[] {
    const { env, cacheDirectories, pluginDirectories } = this.#options;
    return cacheDirectories.flatMap((cacheDirectory) => {
      const options = { env, cacheDirectory, ...pluginDirectories && { pluginDirectories }, log: () => {} };
      try {
        const result = withRuntimeContext(options, call);
        this.#knownCacheFailures.delete(cacheDirectory);
        return [result];
      } catch (error) {
        this.#reportCacheFailure(cacheDirectory, describeFailure(error));
        return [];
      }
    });
  }

  #reportCacheFailure(directory: string, failure: string): void {
    if (this.#knownCacheFailures.get(directory) === failure) return;
    this.#knownCacheFailures.set(directory, failure);
    this.#options.log(`Cannot look after attachments in "${directory}": ${failure}`);
  }

  /** After a restore, and after an engine's DEL has removed a link: it removes the result next. */
  #expectRemovedResults(): void {
    if (this.#revived.isEmpty || this.#resultChecks.length > 0) return;
    const now = performance.now();
    this.#resultChecks = this.#limits.resultGoneMs.map((ms) => now + ms);
  }

  #checkResults(): void {
    const now = performance.now();
    this.#resultChecks = this.#resultChecks.filter((time) => time > now);
    this.#withEachCache((runtime) => this.#removeRevived(runtime));
  }

  #removeRevived(runtime: RuntimeContext): void {
    for (const owner of this.#revived.removeEnded(runtime, this.#limits.lockWaitMs)) {
      this.#options.log(`Removed rules of ${describeAttachment(owner)} again: a DEL ran while they were restored`);
    }
  }

  #noteRestored(line: string): void {
    this.#options.count("restores");
    this.#options.log(line);
  }

  #noteRound(causes: readonly string[]): void {
    const { log, count } = this.#options;
    const pauseMs = this.#fight.noteRound(performance.now());
    if (pauseMs === 0) return;
    count("backoffs");
    log(
      `Rules were removed ${this.#fight.rounds} times in a row, the last time after ${causes.join(" and ")}: ` +
        `the next time they come back after ${pauseMs / 1000} s`,
    );
  }

  /** Of a built-in plugin, one expects that its rules come back. */
  #reportSkipped(reports: readonly RestoreReport[]): void {
    for (const { network, plugins } of reports.flatMap(({ attachments }) => attachments)) {
      for (const { type, skipped } of plugins) {
        const name = `${network} ${type}`;
        if (skipped === undefined || !hasPlugin(type) || this.#knownSkipped.has(name)) continue;
        this.#knownSkipped.add(name);
        this.#options.log(`Cannot restore rules of plugin "${type}" of network "${network}": ${skipped}`);
      }
    }
  }

  #reportFailures(failures: readonly string[]): void {
    for (const failure of failures) if (!this.#knownFailures.has(failure)) this.#options.log(failure);
    this.#knownFailures = new Set(failures);
  }
}

function describeCauses(causes: readonly (string | Committer)[]): string[] {
  const committers = causes.filter((cause) => typeof cause !== "string");
  const others = new Set(causes.filter((cause) => typeof cause === "string"));
  return [...others, ...describeCommitters(committers)];
}

function failuresOf({ attachments, problems }: RestoreReport): string[] {
  const failed = attachments.flatMap((attachment) => {
    const { state, reason, plugins } = attachment;
    if (state !== "failed") return [];
    const reasons = [reason, ...plugins.map((plugin) => plugin.failed)].filter((text) => text !== undefined);
    return reasons.map((text) => `Cannot restore ${describeAttachment(attachment)}: ${text}`);
  });
  return [...problems, ...failed];
}
