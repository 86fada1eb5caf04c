import { elsewhereTest } from "../runtime/attached_elsewhere.ts";
import { describeFailure } from "../runtime/call_plugin.ts";
import type { RuntimeContext } from "../runtime/context.ts";
import type { CacheEntry } from "../runtime/cache.ts";
import { describeAttachment } from "../runtime/resolve_attachment.ts";
import { restoreAttachments, type RestoreReport } from "../runtime/restore.ts";
import { type RuntimeOptions, withRuntimeContext } from "../runtime/runtime.ts";
import { ownerText } from "../plugins/lib/model/owner.ts";
import { hasPlugin } from "../plugins/registry.ts";
import { currentNetns } from "../ffi/netns/netns.ts";
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import {
  type Committer,
  findOwnPid,
  openRulesetMonitor,
  type RulesetChange,
  type RulesetCommit,
} from "../ffi/nft/ruleset_monitor.ts";
import type { Result } from "../spec/result.ts";
import type { CacheResults } from "./each_cache.ts";
import { restoreCopied } from "./copied_restore.ts";
import { describeCommitters, describeRestore, type Restored } from "./describe_restore.ts";
import { FirewalldWatch } from "./firewalld_watch.ts";
import { Fight } from "./fight.ts";
import { GrowingPause } from "./growing_pause.ts";
import { HEALING_LIMITS, type HealingLimits } from "./limits.ts";
import { LinkCare } from "./link_care.ts";
import { isOwnProgram } from "./own_program.ts";
import { ReleasedAttachments } from "./released_attachments.ts";
import { RevivedAttachments } from "./revived_attachments.ts";
import { RulesetCopy } from "./ruleset_copy.ts";
import { isInOurTable, listForeignChains, mayBeLoss } from "./possible_losses.ts";

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
  /** In a process namespace, commits have another number than `process.pid`. */
  readonly #pid: number;
  readonly #resources: DisposableStack;
  readonly #ruleset;
  readonly #firewalld: FirewalldWatch;
  readonly #links: LinkCare;
  readonly #copy = new RulesetCopy();
  readonly #released = new ReleasedAttachments();
  readonly #revived = new RevivedAttachments();
  readonly #foreignChains = listForeignChains();
  readonly #fight: Fight;
  /** Causes of the next look. Times are those of `performance.now()`. */
  #causes: (string | Committer)[] = [UNWATCHED];
  #stormSince: number | undefined;
  #nextLook = -Infinity;
  #laterLooks: number[] = [];
  readonly #retryPause: GrowingPause;
  #failedOwners: ReadonlySet<string> = new Set();
  #resultChecks: number[] = [];
  /** Subjects of failures that were logged and last. */
  #knownFailures: ReadonlySet<string> = new Set();
  /** Directories whose failure was logged and lasts. */
  readonly #failedCaches = new Set<string>();
  readonly #knownSkipped = new Set<string>();

  constructor(options: HealerOptions) {
    this.#options = options;
    this.#limits = options.limits ?? HEALING_LIMITS;
    this.#fight = new Fight(this.#limits);
    this.#retryPause = new GrowingPause(this.#limits.firstRetryMs, this.#limits.longestRetryMs);
    using resources = new DisposableStack();
    using host = currentNetns();
    // Without nf_tables, there are no commits.
    this.#pid = ignoreSystemErrors(() => findOwnPid(host.nft)) ?? process.pid;
    this.#ruleset = resources.use(openRulesetMonitor(
      this.#limits.bufferBytes,
      (change) => isInOurTable(change) || this.#mayBeLoss(change),
    ));
    this.#links = resources.use(
      new LinkCare({
        ...options,
        limits: this.#limits,
        onRemoved: () => this.#expectRemovedResults(),
        onProblem: () => options.count("linkProblems"),
        onPause: () => options.count("backoffs"),
      }),
    );
    this.#firewalld = resources.use(new FirewalldWatch(options.env.DBUS_SYSTEM_BUS_ADDRESS));
    this.#resources = resources.move();
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

  /** Reads what the kernel tells, then acts. */
  round(): void {
    this.#read();
    const now = performance.now();
    if (this.#nextLook <= now) this.#lookAfterLoss();
    else if (this.#laterLooks.some((time) => time <= now)) this.#lookAgain();
    if (this.#resultChecks.some((time) => time <= now)) this.#checkResults();
    this.#links.read();
    if (this.#links.nextLook <= performance.now()) this.#links.look((call) => this.#withEachCache(call));
  }

  /**
   * True if an attachment has rules, also missing ones, or if nobody has looked for them. Also true if links are to be
   * mended.
   */
  hasWork(): boolean {
    const isLooking = this.#nextDue() < Infinity || this.#knownFailures.size > 0;
    return this.#options.healLinks || isLooking || !this.#copy.isKnown || this.#copy.size > 0;
  }

  [Symbol.dispose](): void {
    this.#resources.dispose();
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
    if (committer.pid === this.#pid) return changes.forEach((change) => this.#copy.note(change, true));
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
      if (changes.some((change) => this.#mayBeLoss(change))) this.#noteLoss(committer);
    }
  }

  #mayBeLoss(change: RulesetChange): boolean {
    return mayBeLoss(change, this.#foreignChains);
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
    this.#retryPause.reset();
    const { results: restored, hasFailed } = this.#restore();
    // Else the copy has what was lost meanwhile.
    if (this.#nextLook === Infinity) this.#readCopy();
    this.#expectRemovedResults();
    const line = describeRestore(restored, causes);
    this.#reportSkipped(restored.map(({ report }) => report));
    if (line !== undefined) {
      this.#noteRestored(line);
      this.#noteRound(causes);
    }
    const failures = this.#noteFailures(restored);
    if (line === undefined && failures.length === 0 && !hasFailed) return this.#reportFailures([], false);
    const now = performance.now();
    this.#laterLooks = this.#limits.laterLooksMs.map((ms) => now + ms);
    // A command may have the container now.
    if (this.#laterLooks.length > 0) return;
    this.#reportFailures(failures, line !== undefined);
    if (failures.length > 0 || hasFailed) this.#laterLooks = [now + this.#retryPause.next()];
  }

  /** ADDs and DELs that ran meanwhile have ended, or what failed is tried again. */
  #lookAgain(): void {
    const now = performance.now();
    this.#laterLooks = this.#laterLooks.filter((time) => time > now);
    const isLast = this.#laterLooks.length === 0;
    const isRetry = this.#retryPause.isRunning;
    let isFailing = this.#checkResults();
    if (isLast && !isFailing) this.#revived.clear();
    if (now < this.#fight.pausedUntil || this.#nextLook < Infinity) isFailing ||= this.#failedOwners.size > 0;
    else isFailing = this.#restoreAgain(isRetry) || isFailing;
    if (isLast && isFailing) {
      this.#laterLooks = [Math.max(this.#fight.pausedUntil, performance.now() + this.#retryPause.next())];
    }
  }

  /** @returns whether something is still missing */
  #restoreAgain(isRetry: boolean): boolean {
    const { results: restored, hasFailed } = this.#restore(isRetry);
    const line = describeRestore(restored, [isRetry ? "an earlier failure" : "a command that ran meanwhile"]);
    if (line !== undefined) this.#noteRestored(line);
    const failures = this.#noteFailures(restored);
    this.#reportFailures(failures, line !== undefined);
    return failures.length > 0 || hasFailed;
  }

  #noteFailures(restored: readonly Restored[]): Failure[] {
    const reports = restored.map(({ report }) => report);
    const attachments = reports.flatMap((report) => report.attachments);
    this.#failedOwners = new Set(attachments.filter(({ state }) => state === "failed").map(ownerText));
    return reports.flatMap(failuresOf);
  }

  #restore(isRetry = false): CacheResults<Restored> {
    const failedOwners = this.#failedOwners;
    const failedCaches = new Set(this.#failedCaches);
    return this.#withEachCache((runtime) => {
      const isWanted = (entry: CacheEntry) =>
        !isRetry || failedCaches.has(runtime.cacheDirectory) || failedOwners.has(ownerText(entry));
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
      return { copied, report: this.#restoreByPlugins(runtime, isElsewhere, isWanted) };
    });
  }

  #restoreByPlugins(
    runtime: RuntimeContext,
    isElsewhere: (result: Result) => boolean,
    isWanted: (entry: CacheEntry) => boolean,
  ): RestoreReport {
    const entries = new Map<string, CacheEntry>();
    const report = restoreAttachments(runtime, undefined, {
      maxWaitMs: this.#limits.lockWaitMs,
      isWanted,
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
    this.#copy.forget();
    // Without nf_tables or descriptors, each plugin fails by itself.
    ignoreSystemErrors(() => {
      using host = currentNetns();
      this.#copy.read(host.nft);
    });
    const lookBefore = this.#nextLook;
    this.#read();
    // Something may have been lost before it was copied.
    if (this.#nextLook !== lookBefore) this.#copy.forget();
  }

  #withEachCache<T>(call: (runtime: RuntimeContext) => T): CacheResults<T> {
    const { env, cacheDirectories, pluginDirectories, log } = this.#options;
    const results = cacheDirectories.flatMap((cacheDirectory) => {
      const options = { env, cacheDirectory, ...pluginDirectories && { pluginDirectories }, log: () => {} };
      try {
        const result = withRuntimeContext(options, call);
        if (this.#failedCaches.delete(cacheDirectory)) log(`Looking after attachments in "${cacheDirectory}" again`);
        return [result];
      } catch (error) {
        this.#reportCacheFailure(cacheDirectory, describeFailure(error));
        return [];
      }
    });
    return { results, hasFailed: results.length < cacheDirectories.length };
  }

  #reportCacheFailure(directory: string, failure: string): void {
    if (this.#failedCaches.has(directory)) return;
    this.#failedCaches.add(directory);
    this.#options.log(`Cannot look after attachments in "${directory}": ${failure}`);
  }

  /** After a restore, and after an engine's DEL has removed a link: it removes the result next. */
  #expectRemovedResults(): void {
    if (this.#revived.isEmpty || this.#resultChecks.length > 0) return;
    const now = performance.now();
    this.#resultChecks = this.#limits.resultGoneMs.map((ms) => now + ms);
  }

  /** @returns whether it failed */
  #checkResults(): boolean {
    const now = performance.now();
    this.#resultChecks = this.#resultChecks.filter((time) => time > now);
    if (this.#revived.isEmpty) return false;
    const { log } = this.#options;
    return this.#withEachCache((runtime) =>
      this.#revived.removeEnded(
        runtime,
        this.#limits.lockWaitMs,
        (owner) => log(`Removed rules of ${describeAttachment(owner)} again: a DEL ran while they were restored`),
      )
    ).hasFailed;
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

  /** People expect of a built-in plugin that its rules come back. */
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

  /** @param hasRestored whether a line says so */
  #reportFailures(failures: readonly Failure[], hasRestored: boolean): void {
    const { log } = this.#options;
    for (const { subject, text } of failures) if (!this.#knownFailures.has(subject)) log(text);
    if (failures.length === 0 && this.#knownFailures.size > 0 && !hasRestored) {
      log("Nothing is missing any more of what could not be restored");
    }
    this.#knownFailures = new Set(failures.map(({ subject }) => subject));
  }
}

function describeCauses(causes: readonly (string | Committer)[]): string[] {
  const committers = causes.filter((cause) => typeof cause !== "string");
  const others = new Set(causes.filter((cause) => typeof cause === "string"));
  return [...others, ...describeCommitters(committers)];
}

/** Its words may differ from try to try. */
interface Failure {
  readonly subject: string;
  readonly text: string;
}

function failuresOf({ attachments, problems }: RestoreReport): Failure[] {
  const failed = attachments.filter(({ state }) => state === "failed").map((attachment) => {
    const { reason, plugins } = attachment;
    const reasons = [reason, ...plugins.map((plugin) => plugin.failed)].filter((text) => text !== undefined);
    return {
      subject: ownerText(attachment),
      text: `Cannot restore ${describeAttachment(attachment)}: ${reasons.join("; ")}`,
    };
  });
  return [...problems.map((text) => ({ subject: text, text })), ...failed];
}
