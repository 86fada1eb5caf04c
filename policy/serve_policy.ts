import { containsIp, type Ip, parseIp } from "../ffi/address.ts";
import { currentNetns } from "../ffi/netns/netns.ts";
import { ensureDirectory } from "../ffi/sys/directory.ts";
import { sys } from "../ffi/sys/libc.ts";
import { pollAny } from "../ffi/sys/poll.ts";
import { findStat } from "../ffi/sys/stat.ts";
import { ApiClient } from "../cluster/api/client.ts";
import { asProblem } from "../cluster/api/list.ts";
import { PATIENCE } from "../cluster/api/patience.ts";
import { ApiProblem } from "../cluster/api/problem.ts";
import { reflect, type ReflectorOptions } from "../cluster/api/reflector.ts";
import { nodesFilePath, readNodesFile } from "../cluster/stored_nodes.ts";
import { parseNamespace } from "./api/namespace.ts";
import { parseNetworkPolicy } from "./api/network_policy.ts";
import { type LabelledPod, parsePod, type PodObject } from "./api/pod.ts";
import { FormerFlows } from "./former_flows.ts";
import { FreeAddresses } from "./free_addresses.ts";
import { HeardVersions } from "./heard_versions.ts";
import { serveLines } from "./line_server.ts";
import { untilRoutesAreBack } from "./routes_after_boot.ts";
import type { PodSource } from "./answer_question.ts";
import { PolicyPart, type PolicyPartOptions } from "./part.ts";
import { PeerWatches } from "./peer_watches.ts";
import type { PolicyPartSettings } from "./settings.ts";
import { type PolicyAnswer, type PolicyRequest, policySocketPath } from "./socket.ts";

export interface ServePolicyOptions
  extends PolicyPartSettings, Omit<PolicyPartOptions, "onSelected" | "hasListed" | keyof PodSource> {
  /** Has `token` and `ca.crt` of the service account. */
  readonly accountDirectory: string;
  /** State of the part `cluster`. */
  readonly clusterDirectory: string;
  /** Ends the part when it can be read: a pipe whose other end the server has. */
  readonly lifetime: number;
}

const LOOK_INTERVAL_MS = 100;
const NOT_FOUND = 404;
const GET_MS = 4000;

/** Returns when the server has ended. What is in the kernel stays in force. */
export async function servePolicy(options: ServePolicyOptions): Promise<void> {
  const { apiServer: server, accountDirectory, cacheDirectories, lifetime, log, node, stateDirectory } = options;
  const access = { server, accountDirectory };
  const client = new ApiClient(access);
  const ending = new AbortController();
  const failure = Promise.withResolvers<never>();
  // The socket gets this: only root may ask there.
  sys.umask(0o077);
  const routesAreBack = findStat(stateDirectory) ? undefined : untilRoutesAreBack(options.clusterDirectory);
  ensureDirectory(stateDirectory, 0o700);
  // Plugins that find the directory without it believe that this part has ended. They are answered after what follows.
  using _listener = serveLines(
    policySocketPath(stateDirectory),
    (line) => answer({ part, addresses, formerFlows, attached, routesAreBack }, line),
  );
  using host = currentNetns();
  using addresses: FreeAddresses = new FreeAddresses(host, { log });
  using formerFlows: FormerFlows = new FormerFlows(host, addresses, log);
  const attached = new Set<string>();
  const versions = new HeardVersions(stateDirectory, log);
  using watches = new PeerWatches({
    follow: (namespace, onListed, signal) =>
      followPods(namespace, undefined, AbortSignal.any([ending.signal, signal]), {
        onList: (pods) => {
          onListed();
          part.takePeers(pods, namespace);
          return "taken";
        },
        onEvent: (type, pod) => part.takePeer(type, pod),
      }),
    forgetOthers: (namespaces) => part.forgetOtherPeers(namespaces),
  });
  using part: PolicyPart = new PolicyPart({
    ...options,
    onSelected: (namespaces) => watches.select(namespaces),
    hasListed: (namespaces) => watches.hasListed(namespaces),
    ...podSource(client, ending.signal, (ip) => findNodeOf(ip, cacheDirectories[0]!, log)),
    onInForce() {
      versions.store();
      void addresses.list().catch(failure.reject);
    },
    onAttached: (ips) => addresses.noteAttached(ips),
  });
  const follow = <T>(resource: Omit<ReflectorOptions<T>, "access" | "log" | "onHeard" | "onProblem">) => {
    const { path, fieldSelector = "", signal, onList, onEvent } = resource;
    const asked = `${path}?${fieldSelector}`;
    signal.addEventListener("abort", () => {
      part.forgetApiProblem(asked);
      versions.forget(asked);
    });
    void reflect({
      ...resource,
      access,
      version: versions.of(asked),
      onList(items, version) {
        versions.note(asked, version);
        return onList(items, version);
      },
      onEvent(type, item, version) {
        versions.note(asked, version);
        onEvent(type, item, version);
      },
      onHeard: () => part.hear(asked),
      onProblem: (problem) => part.noteApiProblem(asked, problem),
      log,
    }).catch(failure.reject);
  };
  const followPods = (
    namespace: string | undefined,
    fieldSelector: string | undefined,
    signal: AbortSignal,
    taking: Pick<ReflectorOptions<LabelledPod>, "onList" | "onEvent">,
  ) => {
    const path = namespace === undefined ? "/api/v1/pods" : `/api/v1/namespaces/${namespace}/pods`;
    follow({ path, kind: "Pod", fieldSelector, parse: parsePod, signal, ...taking });
  };
  follow({
    path: "/apis/networking.k8s.io/v1/networkpolicies",
    kind: "NetworkPolicy",
    parse: parseNetworkPolicy,
    onList: (policies) => {
      part.takePolicies(policies);
      return "taken";
    },
    onEvent: (type, policy) => part.takePolicy(type, policy),
    signal: ending.signal,
  });
  follow({
    path: "/api/v1/namespaces",
    kind: "Namespace",
    parse: parseNamespace,
    onList: (namespaces) => {
      part.takeNamespaces(namespaces);
      return "taken";
    },
    onEvent: (type, namespace) => part.takeNamespace(type, namespace),
    signal: ending.signal,
  });
  /** Another network may have given them to pods, before this one. The plugin itself tells of its pods. */
  const useAddresses = ({ uid, staticUid = uid, ips, formerIps = [] }: LabelledPod) => {
    if (!attached.has(uid) && !attached.has(staticUid)) addresses.use([...ips, ...formerIps]);
  };
  followPods(undefined, `spec.nodeName=${node}`, ending.signal, {
    onList: (pods) => {
      part.takeOwnPods(pods);
      for (const pod of pods) useAddresses(pod);
      const listed = new Set(pods.flatMap(({ uid, staticUid = uid }) => [uid, staticUid]));
      for (const uid of attached) if (!listed.has(uid)) attached.delete(uid);
      return "taken";
    },
    onEvent(type, pod) {
      part.takeOwnPod(type, pod);
      useAddresses(pod);
      if (type === "DELETED") attached.delete(pod.uid);
    },
  });
  const ended = Promise.withResolvers<void>();
  const timer = setInterval(() => {
    try {
      if (pollAny([lifetime], 0).length > 0) ended.resolve();
      else part.look();
    } catch (error) {
      failure.reject(error);
    }
  }, LOOK_INTERVAL_MS);
  try {
    await Promise.race([ended.promise, failure.promise]);
  } finally {
    clearInterval(timer);
    ending.abort();
  }
}

interface Answering {
  readonly part: PolicyPart;
  readonly addresses: FreeAddresses;
  readonly formerFlows: FormerFlows;
  /** The UIDs of pods whose ADD has asked. */
  readonly attached: Set<string>;
  /** Absent unless the node has just started. */
  readonly routesAreBack: Promise<void> | undefined;
}

async function answer(answering: Answering, line: string): Promise<PolicyAnswer> {
  const { part, addresses, formerFlows, attached, routesAreBack } = answering;
  try {
    const request = JSON.parse(line) as PolicyRequest;
    if ("test" in request) return { verdict: await part.explain(request.test) };
    if ("question" in request && request.question === "synced") return { isSynced: part.isSynced };
    const ips = request.ips.map(parseIp);
    if (!("question" in request)) {
      const untilMs = request.deleteFlowsUntilMs;
      if (request.uid !== undefined) attached.add(request.uid);
      const areFree = addresses.attach(ips);
      const deletion = untilMs !== undefined && (areFree || formerFlows.delete(ips, untilMs));
      const [state, areFlowsDeleted] = await Promise.all([part.attach(request), deletion, routesAreBack]);
      return { ...state, areFlowsDeleted };
    }
    if (request.question === "verdicts") return { wrong: part.wrongVerdicts(ips) };
    addresses.detach(ips);
    return { areFlowsDeleted: await formerFlows.delete(ips, request.deleteFlowsUntilMs) };
  } catch (error) {
    return { error: (error as Error).message };
  }
}

/** @param findNode in whose ranges the address is */
function podSource(client: ApiClient, signal: AbortSignal, findNode: (ip: Ip) => string | undefined): PodSource {
  const { answerMs, silenceMs } = PATIENCE;
  const fetchObject = async <T>(what: string, path: string, parse: (text: string) => T): Promise<T | undefined> => {
    try {
      const text = await client.getText(path, signal, { answerMs, silenceMs, wholeMs: GET_MS });
      return await asProblem("The answer is no Pod", () => parse(text));
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      if (error.status === NOT_FOUND) return undefined;
      throw new ApiProblem(`Cannot ask for pod "${what}": ${error.message}`, { status: error.status });
    }
  };
  return {
    fetchPod: (namespace, name) =>
      fetchObject(
        `${namespace}/${name}`,
        `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}`,
        (text) => parsePod(JSON.parse(text) as PodObject),
      ),
    // Pods on the network of a node have the node's address. Of the server's cache: etcd would read all pods.
    fetchPodAt(ip) {
      const node = findNode(ip);
      // The API finds no pod by its second address.
      const selector = node === undefined ? `status.podIP=${ip}` : `spec.nodeName=${node}`;
      return fetchObject(
        ip,
        `/api/v1/pods?fieldSelector=${encodeURIComponent(selector)}&resourceVersion=0`,
        (text) =>
          (JSON.parse(text) as { readonly items: readonly PodObject[] }).items.map(parsePod)
            .find(({ ips }) => ips.includes(ip)),
      );
    },
  };
}

/** @returns `undefined` if the part `cluster` has stored no node with such a range */
function findNodeOf(ip: Ip, cacheDirectory: string, log: (message: string) => void): string | undefined {
  const nodes = readNodesFile(nodesFilePath(cacheDirectory), log)?.nodes ?? [];
  return nodes.find(({ podCidrs }) => podCidrs.some((cidr) => containsIp(cidr, ip)))?.name;
}
