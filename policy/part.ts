/** Keeps the kernel in step with the policies of the cluster. @module */
import { type Ip, ipOf, parseIp } from "../ffi/address.ts";
import { currentNetns, type Netns } from "../ffi/netns/netns.ts";
import * as address from "../ffi/route/address.ts";
import { SystemError } from "../ffi/sys/error.ts";
import type { AttachAnswer, AttachRequest } from "../plugins/lib/policy/attach_request.ts";
import { mayForbid, type PolicyChange } from "../plugins/lib/policy/desired.ts";
import { type DropHandling, handleDrops } from "../plugins/lib/policy/drops.ts";
import { verdictsOf } from "../plugins/lib/policy/policy_objects.ts";
import { listWrongVerdicts } from "../plugins/lib/policy/verdicts.ts";
import { PolicyRuleset } from "../plugins/lib/policy/policy_ruleset.ts";
import type { SyncOptions } from "../plugins/lib/policy/sync_policies.ts";
import { CniError } from "../spec/error.ts";
import type { PolicyNamespace } from "./api/namespace.ts";
import type { NetworkPolicy } from "./api/network_policy.ts";
import { type LabelledPod, podKey } from "./api/pod.ts";
import { Attachments } from "./attachments.ts";
import { PolicyCompiler } from "./compiler.ts";
import { DropLog, dropText } from "./drop_log.ts";
import { answerQuestion, type PodSource } from "./answer_question.ts";
import type { PolicyQuestion, PolicyVerdict } from "./explain.ts";
import { FlowJudge } from "./flow_judge.ts";
import { localKey, type LocalPod } from "./local_pod.ts";
import { LocalPods } from "./local_pods.ts";
import { RulesetLosses } from "./ruleset_losses.ts";
import { ApiProblem } from "../cluster/api/problem.ts";
import { Garbage } from "../cluster/garbage.ts";
import { StatusFile } from "../cluster/status_file.ts";
import { compiledStatus, type PolicyStatus } from "./status.ts";
import { UnlistedNamespaces } from "./unlisted_namespaces.ts";
import { StoredPolicies } from "./stored_policies.ts";
import { type AwaitedLists, WaitingPlugins } from "./waiting_plugins.ts";

export type PolicyEventType = "ADDED" | "MODIFIED" | "DELETED";

export type PolicyCounter = "changes" | "changeSeconds" | "repairs";

export interface PolicyPartOptions extends PodSource {
  readonly node: string;
  readonly network?: string;
  readonly drops: DropHandling;
  /** Where the part leaves its status; it is empty after a boot. */
  readonly stateDirectory: string;
  /** The first one holds what is stored of policies. */
  readonly cacheDirectories: readonly string[];
  /** Told of the namespaces whose pods are peers, whenever they may have changed. */
  onSelected(namespaces: ReadonlySet<string>): void;
  /** Whether the pods of all these are known. */
  hasListed(namespaces: ReadonlySet<string>): boolean;
  /** What was taken so far is in the kernel. */
  onInForce?(): void;
  /** Told of all attached addresses, again and again. */
  onAttached?(ips: readonly Ip[]): void;
  /** @param details of a message, for programs */
  log(message: string, details?: object): void;
  count(counter: PolicyCounter, count: number): void;
}

/** Events that come at once are one change of the kernel. */
const CHANGE_INTERVAL_MS = 15;
/** A container waits for this one. */
const ATTACH_INTERVAL_MS = 2;
/** New peers are listed first, as long as that does not take longer. */
const LIST_MS = 1000;
const FIRST_LIST_MS = 3000;
/** How long nothing is compared without a reason. */
const COMPARE_INTERVAL_MS = 60_000;
const RETRY_MS = 2000;
const PODS_OF_A_MEGABYTE = 500;
const ELEMENTS_OF_A_MEGABYTE = 1000;

export class PolicyPart implements Disposable {
  readonly #options: PolicyPartOptions;
  readonly #compiler = new PolicyCompiler((namespaces) => this.#mayUse(namespaces));
  readonly #resources: DisposableStack;
  readonly #host: Netns;
  readonly #ruleset: PolicyRuleset;
  readonly #losses: RulesetLosses;
  readonly #judge: FlowJudge;
  readonly #attachments: Attachments;
  readonly #localPods: LocalPods;
  readonly #status: StatusFile;
  readonly #stored: StoredPolicies;
  readonly #dropLog: DropLog | undefined;
  /** Lists that have to come before anything is done. */
  readonly #missing = new Set(["policies", "namespaces", "pods of this node"]);
  #isInKernel = false;
  /** Whether the kernel has had what the first lists said, without peers whose lists took too long. */
  #isInForce = false;
  #isSynced = false;
  #kernelProblem: string | undefined;
  /** By what was asked for: others may be told meanwhile. */
  readonly #apiProblems = new Map<string, string>();
  /** What was logged of policies that are not whole, by their keys. */
  readonly #unreadable = new Map<string, string>();
  readonly #dropProblems = new Set<string>();
  #heardAtMs: number | undefined;
  // Times are those of `performance.now()`.
  readonly #unlisted: UnlistedNamespaces;
  #changedSince: number | undefined;
  #lastStep = -Infinity;
  #nextCompare = 0;
  /** After a failure, the kernel is left alone for a while. */
  #pausedUntil = 0;
  #timer: Timer | undefined;
  #timerDue = 0;
  readonly #waiting = new WaitingPlugins();

  constructor(options: PolicyPartOptions) {
    this.#options = options;
    this.#unlisted = new UnlistedNamespaces((namespaces) => options.hasListed(namespaces));
    using resources = new DisposableStack();
    this.#host = resources.use(currentNetns());
    const { nft } = this.#host;
    this.#losses = resources.use(new RulesetLosses(nft));
    this.#judge = resources.use(
      new FlowJudge({
        host: this.#host,
        compiler: this.#compiler,
        mayLack: (namespaces) => !this.#isSynced && !this.#options.hasListed(namespaces),
        onFailure: ({ message }) => {
          this.#options.log(`Cannot end connections that policies forbid: ${message}`);
          // The next comparison judges again.
          this.#nextCompare = performance.now() + RETRY_MS;
        },
      }),
    );
    this.#ruleset = new PolicyRuleset(nft);
    this.#attachments = new Attachments(this.#host);
    this.#localPods = new LocalPods(options.cacheDirectories);
    this.#status = new StatusFile(options.stateDirectory, options.log);
    this.#stored = new StoredPolicies(options.cacheDirectories[0]!, options.log);
    if (options.drops.logRate !== undefined) this.#dropLog = resources.use(new DropLog(this.#host, this.#compiler));
    this.#resources = resources.move();
    this.#writeStatus();
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#resources[Symbol.dispose]();
  }

  takePolicies(policies: readonly NetworkPolicy[]): void {
    const listed = new Set(policies.map(podKey));
    for (const policy of [...this.#compiler.policies()]) {
      if (!listed.has(podKey(policy))) this.#removePolicy(podKey(policy));
    }
    for (const policy of policies) this.#putPolicy(policy);
    this.#have("policies");
  }

  takePolicy(type: PolicyEventType, policy: NetworkPolicy): void {
    if (type === "DELETED") this.#removePolicy(podKey(policy));
    else if (!this.#putPolicy(policy)) return;
    this.#changed();
  }

  takeNamespaces(namespaces: readonly PolicyNamespace[]): void {
    const { peers } = this.#compiler;
    const listed = new Set(namespaces.map(({ name }) => name));
    for (const { name } of [...peers.namespaces()]) if (!listed.has(name)) this.#compiler.removeNamespace(name);
    for (const namespace of namespaces) this.#compiler.putNamespace(namespace);
    this.#have("namespaces");
  }

  takeNamespace(type: PolicyEventType, namespace: PolicyNamespace): void {
    if (type === "DELETED") this.#compiler.removeNamespace(namespace.name);
    else if (!this.#compiler.putNamespace(namespace)) return;
    this.#changed();
  }

  takeOwnPods(pods: readonly LabelledPod[]): void {
    this.#replacePods(pods, (pod) => this.#isOwn(pod));
    this.#have("pods of this node");
  }

  takeOwnPod(type: PolicyEventType, pod: LabelledPod): void {
    this.#takePod(type, pod);
  }

  /** @param namespace absent: those of all namespaces */
  takePeers(pods: readonly LabelledPod[], namespace: string | undefined): void {
    const isOfSource = (pod: LabelledPod) =>
      !this.#isOwn(pod) && (namespace === undefined || pod.namespace === namespace);
    this.#replacePods(pods.filter(isOfSource), isOfSource);
    this.#changed();
  }

  /** A pod of this node is told by another watch. */
  takePeer(type: PolicyEventType, pod: LabelledPod): void {
    if (!this.#isOwn(pod)) this.#takePod(type, pod);
  }

  /** Pods of other namespaces than these are not followed any more. */
  forgetOtherPeers(namespaces: ReadonlySet<string>): void {
    for (const { pod } of [...this.#compiler.peers.all()]) {
      if (pod.namespace !== "" && !this.#isOwn(pod) && !namespaces.has(pod.namespace)) {
        this.#compiler.removePod(pod.uid);
      }
    }
    this.#changed();
  }

  /** Whether the kernel has had all that the API had, and is kept so. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** Call it when the API server answers. @param asked what it was asked for */
  hear(asked: string): void {
    this.#heardAtMs = Date.now();
    this.#apiProblems.delete(asked);
  }

  noteApiProblem(asked: string, problem: string): void {
    this.#apiProblems.set(asked, problem);
    // Later, ADD waits for the kernel alone.
    if (!this.#isInForce) this.#waiting.run();
  }

  /** Nobody asks for it any more. */
  forgetApiProblem(asked: string): void {
    this.#apiProblems.delete(asked);
  }

  /** A plugin has attached a pod, and closed it. @returns when its policies are in the kernel, or cannot be */
  async attach(request: AttachRequest): Promise<Pick<AttachAnswer, "state"> | { error: string }> {
    const { namespace, name, uid, container } = request;
    const pod = { namespace, name, ...uid && { uid } };
    this.#localPods.name(container, pod);
    const lists: AwaitedLists = {
      areInForce: () => this.#isInForce,
      problem: () => this.#missing.size > 0 ? this.#apiProblem : undefined,
    };
    const problem = await this.#waiting.awaitFirstLists(lists, request.deleteFlowsUntilMs ?? 0);
    if (problem !== undefined) return { error: `the policies are not known: ${problem}` };
    const key = localKey(pod);
    const local: LocalPod = { ...pod, ips: request.ips.map(parseIp) };
    if (!this.#compiler.isKnown(local)) await this.#askFor(local);
    // It may have been named by its addresses meanwhile, and be closed again.
    this.#compiler.putLocal(this.#compiler.locals().get(key) ?? local, true);
    const done = this.#waiting.nextStep();
    this.#changed(ATTACH_INTERVAL_MS);
    await done;
    while (this.#isInKernel && this.#compiler.held.has(key)) await this.#waiting.nextStep();
    return { state: this.#isInKernel && this.#compiler.isKnown(local) ? "enforced" : "closed" };
  }

  /** What the kernel has lost of what these addresses lead to: `ingress of 10.1.0.2`. Nothing while it is put back. */
  wrongVerdicts(ips: readonly Ip[]): string[] {
    if (!this.#isInKernel || this.#compiler.held.size > 0) return [];
    const policed = new Set(ips.flatMap((ip) => this.#compiler.policedAt(ip) ?? []));
    return listWrongVerdicts(this.#host.nft, [...policed].flatMap(verdictsOf));
  }

  /** @throws {Error} nobody knows */
  async explain(question: PolicyQuestion): Promise<PolicyVerdict> {
    if (this.#missing.size > 0) throw new RangeError(`not known yet: ${[...this.#missing].join(", ")}`);
    const ips = new Set(address.list(this.#host.route).map((each) => ipOf(each.address)));
    return await answerQuestion(this.#compiler, this.#options, { name: this.#options.node, ips }, question);
  }

  /** Call it some times a second. */
  look(): void {
    this.#withoutHarm("log dropped packets", () => this.#logDrops());
    const now = performance.now();
    const removed = this.#losses.look();
    if (removed === "more") {
      this.#attachments.noteLoss();
      this.#nextCompare = now;
    }
    if (now >= this.#nextCompare) this.#isInKernel = false;
    const isWaiting = this.#timer !== undefined;
    const isDue = !this.#isInKernel || removed !== "nothing" || this.#compiler.held.size > 0 ||
      now - this.#lastStep >= 1000;
    if (!isWaiting && isDue) this.#step();
    else if (this.#status.isDue) this.#writeStatus();
  }

  #isOwn({ node }: LabelledPod): boolean {
    return node === this.#options.node;
  }

  get #apiProblem(): string | undefined {
    const problems = new Set(this.#apiProblems.values());
    return problems.size === 0 ? undefined : [...problems].join("; ");
  }

  #putPolicy(policy: NetworkPolicy): boolean {
    const key = podKey(policy);
    const problem = policy.problems.join("; ");
    const known = this.#unreadable.get(key);
    if (problem === "") this.#unreadable.delete(key);
    else if (problem !== known) {
      this.#unreadable.set(key, problem);
      this.#options.log(`Cannot use all of NetworkPolicy ${key}, and what it cannot allows nothing: ${problem}`);
    }
    return this.#compiler.putPolicy(policy);
  }

  #removePolicy(key: string): void {
    this.#unreadable.delete(key);
    this.#compiler.removePolicy(key);
  }

  #takePod(type: PolicyEventType, pod: LabelledPod): void {
    if (type === "DELETED") this.#compiler.removePod(pod.uid);
    // A pod's status changes several times while it starts.
    else if (!this.#compiler.putPod(pod)) return;
    this.#changed();
  }

  #replacePods(pods: readonly LabelledPod[], isOfSource: (pod: LabelledPod) => boolean): void {
    const listed = new Set(pods.map(({ uid }) => uid));
    for (const { pod } of [...this.#compiler.peers.all()]) {
      if (!listed.has(pod.uid) && isOfSource(pod)) this.#compiler.removePod(pod.uid);
    }
    const garbage = new Garbage(PODS_OF_A_MEGABYTE);
    for (const pod of pods) {
      this.#compiler.putPod(pod);
      garbage.step();
    }
  }

  #have(list: string): void {
    this.#missing.delete(list);
    this.#changed();
  }

  async #askFor({ namespace, name, uid }: LocalPod): Promise<void> {
    const pod = await this.#options.fetchPod(namespace, name).catch((error: unknown) => {
      if (!(error instanceof ApiProblem)) throw error;
      this.#options.log(error.message);
      return undefined;
    });
    // What was told meanwhile is newer.
    if (pod && !this.#compiler.peers.find(pod.uid) && (uid === undefined || pod.uid === uid || pod.staticUid === uid)) {
      this.#compiler.putPod(pod);
    }
  }

  #changed(intervalMs = CHANGE_INTERVAL_MS): void {
    const now = performance.now();
    this.#changedSince ??= now;
    const due = this.#lastStep + intervalMs;
    if (this.#timer !== undefined && this.#timerDue <= due) return;
    clearTimeout(this.#timer);
    this.#timerDue = due;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#step();
    }, Math.max(0, due - now));
  }

  #step(): void {
    const now = performance.now();
    if (this.#missing.size > 0) return this.#writeStatus();
    if (now < this.#pausedUntil) return this.#waiting.run();
    this.#lastStep = now;
    try {
      this.#readLocals(now);
      this.#compiler.update();
      const selected = this.#compiler.selectedNamespaces();
      this.#options.onSelected(selected);
      const hasAll = this.#options.hasListed(selected);
      this.#unlisted.note(selected);
      if (!this.#isInForce && !this.#mayUse(selected)) return this.#writeStatus();
      this.#changeKernel(now, hasAll);
    } catch (error) {
      if (!(error instanceof SystemError || error instanceof CniError)) throw error;
      this.#isInKernel = false;
      this.#pausedUntil = now + RETRY_MS;
      if (error.message !== this.#kernelProblem) this.#options.log(`Cannot enforce policies: ${error.message}`);
      this.#kernelProblem = error.message;
    }
    this.#waiting.run();
    this.#writeStatus();
  }

  /** What is in force without the new peers is better than nothing. */
  #mayUse(namespaces: ReadonlySet<string>): boolean {
    return this.#unlisted.haveListedOrWaited(namespaces, this.#isInForce ? LIST_MS : FIRST_LIST_MS);
  }

  #changeKernel(now: number, hasAll: boolean): void {
    const policedNamespaces = this.#compiler.policedNamespaces();
    this.#stored.add(policedNamespaces);
    // What it kept for peers that were not known, only a comparison finds.
    if (hasAll && !this.#isSynced) this.#isInKernel = false;
    const change = this.#isInKernel ? this.#compiler.takeChange() : undefined;
    // Before all lists have come, sets have elements that nobody knows.
    if (change && !this.#isSynced) this.#isInKernel = false;
    const refusal = change && this.#isInKernel ? this.#tryChange(change) : undefined;
    const isCompared = !this.#isInKernel;
    if (isCompared) {
      const garbage = new Garbage(ELEMENTS_OF_A_MEGABYTE);
      const desired = this.#compiler.desired();
      const options: SyncOptions = { onSet: (elements) => garbage.step(elements) };
      if (!this.#isSynced) options.mayBePeer = (set, ip) => this.#mayBePeer(set, ip);
      const differences = [this.#ruleset.replace(desired, options)];
      if (this.#attachments.restore()) {
        // Which ports of bridges are isolated, the guard tells.
        this.#ruleset.replace(desired, options);
        differences.push("the guard of pods");
      }
      const difference = differences.filter((each) => each !== undefined).join(", ");
      this.#withoutHarm(
        "change what is counted and logged of dropped packets",
        () => handleDrops(this.#host.nft, this.#options.drops),
      );
      this.#nextCompare = now + COMPARE_INTERVAL_MS;
      if (this.#isSynced && difference !== "") {
        this.#options.count("repairs", 1);
        this.#options.log(
          `Policies are in the kernel again: ${difference}${refusal === undefined ? "" : `, after: ${refusal}`}`,
        );
      }
    }
    const isChanged = change !== undefined || isCompared;
    this.#isInKernel = true;
    this.#isInForce = true;
    this.#isSynced ||= hasAll;
    this.#kernelProblem = undefined;
    this.#stored.replace(policedNamespaces);
    this.#options.onInForce?.();
    if (isChanged) this.#judge.judgeSoon(isCompared || mayForbid(change!));
    if (isChanged && this.#changedSince !== undefined) {
      this.#options.count("changes", 1);
      this.#options.count("changeSeconds", (performance.now() - this.#changedSince) / 1000);
    }
    this.#changedSince = undefined;
  }

  #mayBePeer(set: string, ip: Ip): boolean {
    const { peers } = this.#compiler.setOf(set);
    return peers !== undefined && !this.#options.hasListed(peers.scope.members) &&
      this.#compiler.peers.ownerOf(ip) === undefined;
  }

  /** What it is to change may differ from what the kernel has. @returns why it could not */
  #tryChange(change: PolicyChange): string | undefined {
    this.#isInKernel = false;
    try {
      this.#ruleset.change(change);
      this.#isInKernel = true;
      return undefined;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      return error.message;
    }
  }

  /** Policies are in force without what is done here. */
  #withoutHarm(what: string, run: () => void): void {
    try {
      run();
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      const problem = `Cannot ${what}: ${error.message}`;
      if (!this.#dropProblems.has(problem)) this.#options.log(problem);
      this.#dropProblems.add(problem);
    }
  }

  #logDrops(): void {
    this.#dropLog?.read((drop) => this.#options.log(dropText(drop), drop));
  }

  #readLocals(now: number): void {
    const { peers } = this.#compiler;
    const findOwner = (ip: Ip) => {
      const pod = peers.ownerOf(ip)?.pod;
      return pod && this.#isOwn(pod) ? pod : undefined;
    };
    const { attached, isWhole } = this.#attachments.look();
    this.#options.onAttached?.(attached.map(({ ip }) => ip));
    if (!isWhole) this.#isInKernel = false;
    const present = this.#localPods.group(attached, findOwner, now);
    for (const key of [...this.#compiler.locals().keys()]) if (!present.has(key)) this.#compiler.removeLocal(key);
    for (const local of present.values()) this.#compiler.putLocal(local);
  }

  #writeStatus(): void {
    const { node, network } = this.#options;
    const status: PolicyStatus = {
      node,
      ...network !== undefined && { network },
      isSynced: this.#isSynced,
      ...this.#apiProblem !== undefined && { apiProblem: this.#apiProblem },
      ...compiledStatus(this.#compiler),
      unreadablePolicies: [...this.#unreadable.keys()],
      cutFlows: this.#judge.cutFlows,
      problems: this.#kernelProblem === undefined ? [] : [this.#kernelProblem],
    };
    this.#status.write(status, this.#heardAtMs);
  }
}
