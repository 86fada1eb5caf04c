/** Keeps the kernel and the engines in step with the nodes of the cluster. @module */
import { type Cidr, containsIp, hostPrefix, ipOf } from "../ffi/address.ts";
import { currentNetns } from "../ffi/netns/netns.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { EngineNetwork } from "./engine_network.ts";
import type { EventType, ListVerdict } from "./api/reflector.ts";
import { KnownNodes, type NodeChanges } from "./known_nodes.ts";
import { ClusterNetwork } from "./network/cluster_network.ts";
import { removeClusterNetwork } from "./network/remove.ts";
import { type ClusterNode, hasTextsOf, type NodeObject, parseNode } from "./node.ts";
import { setPodMtu } from "./pod_mtu.ts";
import type { NodePod } from "./pods.ts";
import type { ClusterPartSettings } from "./settings.ts";
import type { ClusterStatus } from "./status.ts";
import { StatusFile } from "./status_file.ts";
import { nodesFilePath, StoredNodes } from "./stored_nodes.ts";

export interface ClusterPartOptions extends ClusterPartSettings {
  /** Where the part leaves its status; it is empty after a boot. */
  readonly stateDirectory: string;
  readonly confDirectory: string;
  readonly pluginDirectories: readonly string[];
  /** The first one holds what is stored of nodes. */
  readonly cacheDirectories: readonly string[];
  log(message: string): void;
  count(counter: "relists" | "repairs"): void;
}

/** To compare all with the kernel takes less than so many changes. */
const MANY_CHANGES = 1000;

export class ClusterPart implements Disposable {
  readonly #options: ClusterPartOptions;
  readonly #known: KnownNodes;
  readonly #status: StatusFile;
  readonly #stored: StoredNodes;
  /** Absent if somebody else routes between nodes. */
  readonly #network: ClusterNetwork | undefined;
  readonly #engines: EngineNetwork | undefined;
  /** Addresses of pods that the kernel knows beside this node's ranges. */
  #formerCidrs: readonly Cidr[] = [];
  /** Whether the next step has only changes to do. */
  #isInKernel = false;
  /** UIDs of others that have changed since then. */
  #changedPeers = new Set<string>();
  #isSynced = false;
  #hasLeft = false;
  #kernelProblem: string | undefined;
  #apiProblem: string | undefined;
  #heardAtMs: number | undefined;
  /** That of the API which has what is known. */
  #version: string | undefined;
  #hasListed = false;

  constructor(options: ClusterPartOptions) {
    const { cacheDirectories, log, count } = options;
    this.#options = options;
    this.#known = new KnownNodes(options.node);
    this.#status = new StatusFile(options.stateDirectory, log);
    this.#stored = new StoredNodes({
      path: nodesFilePath(cacheDirectories[0]!),
      content: () => ({ resourceVersion: this.#version ?? "0", nodes: this.#known.all() }),
      log,
    });
    if (options.what === "network") {
      this.#network = new ClusterNetwork({ settings: options, log, onRepair: () => count("repairs") });
    }
    if (options.network) this.#engines = new EngineNetwork({ ...options, network: options.network });
    if (this.#network && this.#engines?.masquerades) {
      log(
        `A plugin of the network "${this.#engines.name}" has "ipMasq": true, so pods of other nodes see this node in ` +
          "the place of its pods, and so do their policies: leave it out, what leaves the cluster is masqueraded anyway",
      );
    }
    const file = this.#stored.read();
    if (file && this.#known.replace(file.nodes) !== "without-own-node") this.#version = file.resourceVersion;
    this.#step();
    this.#writeStatus();
  }

  [Symbol.dispose](): void {
    this.#stored[Symbol.dispose]();
    this.#network?.[Symbol.dispose]();
  }

  get version(): string | undefined {
    return this.#version;
  }

  /** Whether all known nodes have been in the kernel once, and engines have the network. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** Each of them asks the API server. */
  get nodeCount(): number {
    return this.#known.size;
  }

  /** Reads a node for {@linkcode takeList} and {@linkcode takeEvent}. */
  read(object: NodeObject): ClusterNode {
    const known = this.#known.find(object.metadata.uid);
    return known && hasTextsOf(object, known) ? known : this.#known.recognize(parseNode(object));
  }

  takeList(nodes: readonly ClusterNode[], version: string): ListVerdict {
    const changes = this.#known.replace(nodes);
    if (changes === "without-own-node") return { refused: `it has no node "${this.#options.node}"` };
    if (this.#hasListed) this.#options.count("relists");
    this.#hasListed = true;
    this.#note(changes, version);
    this.catchUp();
    this.#writeStatus();
    return "taken";
  }

  /** Call {@linkcode catchUp} after the last one of those that come at once, if the part is behind. */
  takeEvent(type: EventType, node: ClusterNode, version: string): void {
    this.#note(this.#known.apply(type, node), version);
  }

  /** Whether the kernel has to follow what was told. */
  get isBehind(): boolean {
    return !this.#isInKernel || this.#changedPeers.size > 0;
  }

  /** Has the kernel follow the events. */
  catchUp(): void {
    if (!this.isBehind) return;
    if (this.#changedPeers.size > MANY_CHANGES) this.#isInKernel = false;
    const peers = this.#changedPeers;
    this.#changedPeers = new Set();
    const wasSynced = this.#isSynced;
    this.#step(() => this.#network?.update(new Map(Array.from(peers, (uid) => [uid, this.#known.peer(uid)]))));
    // Who waits for a node reads it often. All else can wait for the next look: it takes longer than the change.
    if (this.#isSynced !== wasSynced) this.#writeStatus();
  }

  /** Call it when the API server answers. */
  hear(): void {
    this.#heardAtMs = Date.now();
    this.#apiProblem = undefined;
  }

  noteApiProblem(problem: string): void {
    this.#apiProblem = problem;
  }

  /** Call it once a second. @returns whether the connection to the API server may be dead */
  look(): boolean {
    this.catchUp();
    this.#step(() => this.#network?.look());
    this.#writeStatus();
    return this.#network?.takeAddressLoss() ?? false;
  }

  #note({ own, peers }: NodeChanges, version: string): void {
    this.#version = version;
    if (!own && peers.size === 0) return;
    if (own) this.#isInKernel = false;
    for (const uid of peers) this.#changedPeers.add(uid);
    this.#stored.change();
  }

  /** @param change to do where the kernel has all that was known before */
  #step(change = () => {}): void {
    const { own } = this.#known;
    if (own && own.podCidrs.length > 0) {
      try {
        if (this.#isInKernel) change();
        else this.#replace(own);
        if (!this.#network) this.#leaveNetwork();
        this.#isInKernel = true;
        this.#kernelProblem = undefined;
      } catch (error) {
        if (!(error instanceof SystemError)) throw error;
        this.#isInKernel = false;
        this.#noteKernelProblem(error.message);
      }
      const isReached = this.#isInKernel && this.#network?.isSetUp !== false;
      if (isReached && this.#engines?.offer(own.podCidrs, this.#network?.mtu)) this.#followPods(own, this.#engines);
      this.#isSynced ||= isReached && this.#engines?.isInstalled !== false;
    }
  }

  /** Somebody else routes now. What the part made before goes, unless pods have a network that needs it. */
  #leaveNetwork(): void {
    if (this.#hasLeft || !this.#isSynced || this.#engines?.problem !== undefined) return;
    removeClusterNetwork(this.#options.log);
    this.#hasLeft = true;
  }

  #noteKernelProblem(message: string): void {
    if (message !== this.#kernelProblem) this.#options.log(`Cannot connect to other nodes: ${message}`);
    this.#kernelProblem = message;
  }

  #replace(own: ClusterNode): void {
    if (!this.#network) return;
    this.#formerCidrs = this.#findFormerCidrs(own, this.#engines?.pods() ?? []);
    this.#network.replace(own, this.#known.peers(), this.#formerCidrs);
  }

  /** Finds those whose ADD had read what engines had before. */
  #followPods(own: ClusterNode, engines: EngineNetwork): void {
    if (!this.#network) return;
    const pods = engines.pods();
    if (engines.givesMtu) {
      using host = currentNetns();
      setPodMtu(host, pods, this.#network.mtu, this.#options.log);
    }
    const areKnown = this.#findFormerCidrs(own, pods).every((cidr) => this.#formerCidrs.includes(cidr));
    if (!areKnown) this.#isInKernel = false;
  }

  /** Addresses of pods that run since before this node got other ranges. */
  #findFormerCidrs({ podCidrs }: ClusterNode, pods: readonly NodePod[]): readonly Cidr[] {
    if (!this.#engines?.givesRanges) return [];
    return pods.flatMap(({ result }) => result?.ips ?? []).map(({ address }) => ipOf(address))
      .filter((ip) => !podCidrs.some((cidr) => containsIp(cidr, ip))).map(hostPrefix);
  }

  #writeStatus(): void {
    const { node } = this.#options;
    const { own } = this.#known;
    const status: ClusterStatus = {
      node,
      ...this.#engines?.name !== undefined && { network: this.#engines.name },
      podCidrs: own?.podCidrs ?? [],
      isSynced: this.#isSynced,
      ...this.#apiProblem !== undefined && { apiProblem: this.#apiProblem },
      nodes: this.#known.peerCount,
      ...this.#network && { routes: this.#network.routeCounts() },
      mtu: this.#network?.mtu ?? 0,
      problems: this.#problems(own),
      leftRoutes: this.#network?.leftRoutes() ?? [],
    };
    this.#status.write(status, this.#heardAtMs);
  }

  #problems(own: ClusterNode | undefined): string[] {
    const conflicts = this.#known.conflicts().map(({ node, other, cidr }) =>
      `node "${node.name}" has ${cidr}, which overlaps with a range of the older node "${other.name}": it is not reached`
    );
    const lost = this.#known.withLostAddresses().map(({ name, addresses }) =>
      `the API has no address of node "${name}" any more: the last, ${addresses.join(" and ")}, stays in use`
    );
    return [
      ...own ? [] : [`nothing is known of node "${this.#options.node}" yet`],
      ...own?.podCidrs.length === 0 ? [`node "${own.name}" has no spec.podCIDRs: ${NO_RANGES_ADVICE}`] : [],
      ...this.#kernelProblem === undefined ? [] : [this.#kernelProblem],
      ...[this.#engines?.problem, this.#engines?.shadow()].filter((problem) => problem !== undefined),
      ...conflicts,
      ...lost,
      ...this.#network?.problems() ?? [],
    ];
  }
}

const NO_RANGES_ADVICE = "start kube-controller-manager with --allocate-node-cidrs";
