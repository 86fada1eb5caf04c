/** What a real API server answers that cannot or will not say more. Its audit log tells what it answered to whom. @module */
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { readAccess } from "./api_access.ts";
import { loadApi } from "./api_load.ts";
import { PROXY_KUBECONFIG, replaceAccountKey } from "./control_plane.ts";
import { inCluster } from "./directory.ts";
import { type FaultNode, restartProgram, runWithOptions } from "./fault_nodes.ts";
import { runMeanwhile, untilTrue } from "./kubectl.ts";
import {
  addOtherNode,
  type FaultScene,
  knowsOtherNode,
  NODES,
  removeOtherNode,
  send,
  untilOtherForgotten,
  untilOtherKnown,
} from "./other_node.ts";

const AUDIT_LOG = inCluster("audit.log");
const AUDIT_POLICY = inCluster("audit.json");
/** Who asks for nodes, and what the answer was. */
const POLICY = {
  apiVersion: "audit.k8s.io/v1",
  kind: "Policy",
  omitStages: ["RequestReceived"],
  rules: [{ level: "Metadata", verbs: ["list", "watch"], resources: [{ resources: ["nodes"] }] }, { level: "None" }],
};

/** All others together have so many. */
const IN_FLIGHT = ["--enable-priority-and-fairness=false", "--max-requests-inflight=3"];
const MUTATING_IN_FLIGHT = ["--max-mutating-requests-inflight=2"];
/** Somebody who is refused asks so many times at least. */
const LEAST_REFUSALS = 3;
/** A part with a new token, or with an API server that takes requests again, goes on so soon. */
const GO_ON_MS = 5000;

interface Answer {
  readonly atMs: number;
  readonly uri: string;
  readonly status: number;
}

/** The API server is made anew, and etcd forgets all versions but the newest: watches cannot go on. */
export async function forgetVersions(scene: FaultScene): Promise<void> {
  const { nodes, request, ask } = scene;
  const { metadata: { resourceVersion } } = await send(request, `${NODES}?limit=1`, "GET");
  const before = await Promise.all(nodes.map((node) => metricOf(node, "cni_cluster_relists_total")));
  // They would ask the API server that is away, and list again because of that.
  for (const node of nodes) node.signal("part", "SIGSTOP");
  try {
    await addOtherNode(request);
    await withApiServer(scene, [], () => compactEtcd(nodes[0]!), async () => {
      const watch = await ask(`${NODES}?watch=1&timeoutSeconds=1&resourceVersion=${resourceVersion}`);
      const answer = await watch.text();
      if (!/"code":410/.test(answer)) throw new Error(`A watch from ${resourceVersion} on is answered: ${answer}`);
      for (const node of nodes) node.signal("part", "SIGCONT");
      await untilOtherKnown(nodes);
      for (const [i, node] of nodes.entries()) {
        requireAnswers(node, "a watch, and then the newest list", (answers) => {
          const [watched, listed] = answers;
          return watched?.uri.includes("watch=1") === true && listed?.uri === NODES && listed.status === 200;
        });
        const relists = await metricOf(node, "cni_cluster_relists_total") - before[i]!;
        if (relists !== 1) throw new Error(`${node.plan.name} has listed nodes ${relists} times`);
      }
      await forget(scene);
    });
  } finally {
    for (const node of nodes) node.signal("part", "SIGCONT");
  }
}

/** The API server takes few requests at once, and others have them all. */
export async function refuseRequests(scene: FaultScene): Promise<void> {
  const { nodes, request } = scene;
  for (const node of nodes) node.signal("part", "SIGSTOP");
  try {
    await withApiServer(scene, [...IN_FLIGHT, ...MUTATING_IN_FLIGHT], () => Promise.resolve(), async () => {
      {
        using load = await loadApi(readAccess(PROXY_KUBECONFIG));
        const { headers } = await load.requireRefusal();
        const retryAfterS = Number(headers.get("retry-after") ?? NaN);
        if (!(retryAfterS >= 1)) throw new Error(`Retry-After is ${headers.get("retry-after")}`);
        for (const node of nodes) node.signal("part", "SIGCONT");
        await addOtherNode(request);
        const refusals = (node: FaultNode) => answersTo(node).filter(({ status }) => status === 429);
        await untilTrue(
          "The refusal of requests",
          () => Promise.resolve(nodes.every((node) => refusals(node).length >= LEAST_REFUSALS)),
        );
        await load.requireRefusal();
        for (const node of nodes) {
          const times = refusals(node).map(({ atMs }) => atMs);
          const pauses = times.slice(1).map((time, i) => time - times[i]!);
          if (Math.min(...pauses) < retryAfterS * 1000) {
            throw new Error(`${node.plan.name} did not wait ${retryAfterS} s, but ${pauses.join(" and ")} ms`);
          }
          if (knowsOtherNode(node)) throw new Error(`${node.plan.name} knows what it was not told`);
        }
      }
      const [since, started] = [Date.now(), performance.now()];
      await untilOtherKnown(nodes);
      requireSoon("All nodes go on", performance.now() - started, "requests are taken");
      await untilPoliciesHeard(nodes, since);
      await forget(scene);
    });
  } finally {
    for (const node of nodes) node.signal("part", "SIGCONT");
  }
}

/** The key that signs tokens is another. The kubelet gets new ones when it starts, and writes them into the volumes. */
export async function refuseTokens(scene: FaultScene): Promise<void> {
  const { nodes, request } = scene;
  const former = await Promise.all(nodes.map(tokenTime));
  await withApiServer(scene, [], () => Promise.resolve(void replaceAccountKey()), async () => {
    await addOtherNode(request);
    await untilTrue(
      "The refusal of tokens",
      () => Promise.resolve(nodes.every((node) => answersTo(node).filter(({ status }) => status === 401).length > 1)),
    );
    for (const node of nodes) if (knowsOtherNode(node)) throw new Error(`${node.plan.name} knows what it was not told`);
    const since = Date.now();
    await Promise.all(nodes.map((node) => restartProgram(node, "kubelet")));
    await Promise.all(nodes.map(async (node, i) => {
      let written = former[i]!;
      await untilTrue("A new token", async () => (written = await tokenTime(node)) !== former[i]);
      await untilTrue("Hearing of a node", () => Promise.resolve(knowsOtherNode(node)));
      requireSoon(`${node.plan.name} goes on`, Date.now() - written, "its new token");
    }));
    await untilPoliciesHeard(nodes, since);
    await forget(scene);
  });
}

function requireSoon(what: string, ms: number, since: string): void {
  const text = `${what} ${Math.round(ms)} ms after ${since}`;
  console.log(`  ${text}`);
  if (ms > GO_ON_MS) throw new Error(text);
}

/** Policies have a part of their own. */
async function untilPoliciesHeard(nodes: readonly FaultNode[], sinceMs: number): Promise<void> {
  await untilTrue("Hearing of policies", async () => {
    const times = await Promise.all(nodes.map((node) => metricOf(node, "cni_policy_heard_timestamp_seconds")));
    return times.every((seconds) => seconds * 1000 > sinceMs);
  });
}

async function forget({ nodes, request }: FaultScene): Promise<void> {
  await removeOtherNode(request);
  await untilOtherForgotten(nodes);
}

/** Has an API server with an audit log of its own for a while. */
async function withApiServer(
  { nodes: [first], request }: FaultScene,
  options: readonly string[],
  between: () => Promise<void>,
  act: () => Promise<void>,
): Promise<void> {
  writeFileSync(AUDIT_POLICY, JSON.stringify(POLICY));
  rmSync(AUDIT_LOG, { force: true });
  const audit = [`--audit-policy-file=${AUDIT_POLICY}`, `--audit-log-path=${AUDIT_LOG}`, "--audit-log-mode=blocking"];
  await runWithOptions(first!, "kube-apiserver", [...options, ...audit], between, async () => {
    await untilTrue(
      "The start of the API server",
      () => request("/readyz").then((answer) => answer.text()).then(() => true, () => false),
    );
    await act();
  });
}

/** @see etcd's API, by its gateway for JSON */
async function compactEtcd({ run }: FaultNode): Promise<void> {
  const post = (path: string, body: object) =>
    run(`busybox wget -qO- --post-data='${JSON.stringify(body)}' http://127.0.0.1:2379/v3/kv/${path}`);
  const { header: { revision } } = JSON.parse(await post("range", { key: btoa("/") }));
  await post("compaction", { revision, physical: true });
}

/** What the part of a node was answered about nodes. Of others with this program, no one asks from a node. */
function answersTo({ plan: { addresses } }: FaultNode): readonly Answer[] {
  const lines = existsSync(AUDIT_LOG) ? readFileSync(AUDIT_LOG, "utf8").split("\n").slice(0, -1) : [];
  // A watch is there twice: when it begins, and when it ends.
  const events = new Map(lines.map((line) => JSON.parse(line)).map((event) => [event.auditID, event]));
  return Array.from(events.values())
    .filter(({ sourceIPs, userAgent }) => addresses.includes(sourceIPs?.[0]) && /^Bun\//.test(userAgent))
    .map(({ requestURI: uri, responseStatus, requestReceivedTimestamp }) => ({
      atMs: Date.parse(requestReceivedTimestamp),
      uri,
      status: responseStatus?.code ?? 0,
    }));
}

function requireAnswers(node: FaultNode, what: string, isRight: (answers: readonly Answer[]) => boolean): void {
  const answers = answersTo(node);
  if (isRight(answers)) return;
  throw new Error(`${node.plan.name} did not ask for ${what}, but: ${JSON.stringify(answers)}`);
}

async function metricOf({ run }: FaultNode, name: string): Promise<number> {
  const text = await run("busybox wget -qO- http://127.0.0.1:9469/metrics");
  return Number(new RegExp(`^${name} (.*)$`, "m").exec(text)?.[1] ?? 0);
}

/** When the kubelet has written the token of the server's pod, by the system's clock. */
async function tokenTime({ plan: { name } }: FaultNode): Promise<number> {
  const path = "/var/lib/kubelet/pods/*/volumes/kubernetes.io~projected/token/token";
  return Number(await runMeanwhile(["on", name, "sh", "-c", `stat -L -c %.3Y ${path}`])) * 1000;
}
