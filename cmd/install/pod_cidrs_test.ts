import { afterAll, beforeAll, describe, expect } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { currentNetns } from "../../ffi/netns/netns.ts";
import { type ApiServer, serveApi } from "../../testing/api_server.ts";
import { testWith } from "../../testing/binary.ts";
import { findPodCidrs } from "./pod_cidrs.ts";

const PROGRAMS = ["openssl"];
const CIDRS = ["10.244.3.0/24", "fd44:0:0:3::/64"];
const ADDRESS = "127.0.0.1";
/** Instead of a node, by the node that is asked for. */
const OTHER_ANSWERS: Readonly<Record<string, readonly [status: number, text: string]>> = {
  page: [200, "<html>Please log in</html>"],
  busy: [503, "the server is shutting down"],
  list: [200, `{"kind": "NodeList", "items": []}`],
  garbled: [200, `{"kind": "Node", "spec": {"podCIDRs": ["10.244.3.0"]}}`],
};

describe("the pod ranges of a node", () => {
  const resources = new DisposableStack();
  const account = mkdtempSync(join(tmpdir(), "cni-account-"));
  let server: ApiServer;
  let env: Record<string, string>;
  beforeAll(() => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    const host = resources.use(currentNetns());
    const nodes = [{ name: "node-1", podCIDRs: CIDRS }, { name: "new" }].map(({ name, ...spec }) => ({
      ...{ apiVersion: "v1", kind: "Node", metadata: { name }, spec } as const,
    }));
    server = resources.use(serveApi(host, ADDRESS, "token-1", nodes, account));
    writeFileSync(join(account, "ca.crt"), server.ca);
    env = { KUBERNETES_SERVICE_HOST: ADDRESS, KUBERNETES_SERVICE_PORT: `${server.port}` };
  });
  afterAll(() => {
    resources.dispose();
    rmSync(account, { recursive: true });
  });

  const find = (node: string, token = "token-1\n", ownEnv = env) => {
    writeFileSync(join(account, "token"), token);
    return findPodCidrs(node, ownEnv, account);
  };

  testWith(PROGRAMS, "are those of both families", async () => {
    expect(await find("node-1")).toEqual(CIDRS as never);
  });

  testWith(PROGRAMS, "are asked for with one clear error after a failure", async () => {
    const failure = (problem: string) =>
      expect.stringContaining(`Cannot read the pod ranges of node "new": ${problem}`);
    const refusals = [
      [() => find("new"), "it has no spec.podCIDRs"],
      [() => find("new", "another"), `https://${ADDRESS}:${server.port} answers 401`],
      [() => find("new", undefined, {}), "KUBERNETES_SERVICE_HOST is not set"],
      [() => find("new", undefined, { ...env, KUBERNETES_SERVICE_PORT: "1" }), `https://${ADDRESS}:1 does not answer`],
      [
        () => find("new", undefined, { KUBERNETES_SERVICE_HOST: "::1", KUBERNETES_SERVICE_PORT: "1" }),
        "https://[::1]:1 does not answer",
      ],
    ] as const;
    for (const [found, problem] of refusals) {
      expect(await found().then(() => "", ({ message }) => message)).toEqual(failure(problem));
    }
    await expect(find("node-2")).rejects.toThrow("there is no such node");
    const elsewhere = findPodCidrs("node-1", env, "/nonexistent");
    await expect(elsewhere).rejects.toThrow('"/nonexistent" has no token or ca.crt');
  });

  testWith(PROGRAMS, "are not taken from an answer that has no node, which the error shows", async () => {
    const [key, cert] = ["api.key", "api.crt"].map((name) => Bun.file(join(account, name))) as [
      Bun.BunFile,
      Bun.BunFile,
    ];
    const other = Bun.serve({
      ...{ hostname: ADDRESS, port: 0, tls: { key, cert } },
      fetch({ url }) {
        const [status, text] = OTHER_ANSWERS[url.slice(url.lastIndexOf("/") + 1)]!;
        return new Response(text, { status });
      },
    });
    for (const [node, [status, text]] of Object.entries(OTHER_ANSWERS)) {
      const found = find(node, undefined, { ...env, KUBERNETES_SERVICE_PORT: `${other.port}` });
      await expect(found).rejects.toMatchObject({
        message: `Cannot read the pod ranges of node "${node}": https://${ADDRESS}:${other.port} answers ${status}`,
        details: `expected a node: got ${JSON.stringify(text)}`,
      });
    }
    other.stop(true);
  });

  testWith(PROGRAMS, "are not taken from a server with another certificate, even if asked to", async () => {
    const other = mkdtempSync(join(tmpdir(), "cni-account-"));
    using host = currentNetns();
    using impostor = serveApi(host, ADDRESS, "token-1", [], other);
    rmSync(other, { recursive: true });
    // Other requests of the runtime trust anybody then.
    process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";
    try {
      const found = find("node-1", undefined, { ...env, KUBERNETES_SERVICE_PORT: `${impostor.port}` });
      await expect(found).rejects.toThrow(`https://${ADDRESS}:${impostor.port} does not answer`);
    } finally {
      delete process.env["NODE_TLS_REJECT_UNAUTHORIZED"];
    }
  });
});
