import { afterAll, beforeEach, describe, expect } from "bun:test";
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { currentNetns } from "../../ffi/netns/netns.ts";
import { openFile } from "../../ffi/sys/file.ts";
import { answer, ApiServer, refuse } from "../../testing/api_server.ts";
import { testWith } from "../../testing/binary.ts";
import { newNode } from "../../testing/cluster_nodes.ts";
import { useDirectory } from "../../testing/directory.ts";
import { until } from "../../testing/netns.ts";
import type { ListVerdict } from "./reflector.ts";
import { PATIENCE } from "./patience.ts";
import { NodeCopy, SHORT_PATIENCE } from "../../testing/node_copy.ts";

const PROGRAMS = ["openssl"];
type Fault = (response: ServerResponse) => void;

const errorEvent = (code: number, message: string): string =>
  JSON.stringify({ type: "ERROR", object: { kind: "Status", code, message } });
const POD_EVENT = JSON.stringify({ type: "ADDED", object: { kind: "Pod" } });

async function writeSlowly(response: ServerResponse, text: string): Promise<void> {
  response.writeHead(200);
  for (let at = 0; at < text.length; at += 100) {
    response.write(text.slice(at, at + 100));
    await Bun.sleep(2);
  }
  response.end();
}

/** Another service account, whose authority has signed nothing of the server. */
function useOther(account: string): string {
  const other = join(account, "other");
  mkdirSync(other);
  using host = currentNetns();
  using _impostor = new ApiServer(host, { address: "127.0.0.1", directory: other, token: "t1" });
  writeFileSync(join(other, "token"), "t1");
  return other;
}

describe("a copy of the API's nodes", () => {
  const account = useDirectory("cni-account-");
  const resources = new DisposableStack();
  let server: ApiServer;
  beforeEach(() => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    const host = resources.use(currentNetns());
    const objects = [1, 2, 3].map((index) => newNode(index));
    server = resources.use(new ApiServer(host, { address: "127.0.0.1", directory: account, token: "t1", objects }));
    writeFileSync(join(account, "token"), "t1\n");
  });
  afterAll(() => resources.dispose());

  const listing = (): string[] => server.requests.filter((request) => !request.includes("watch"));

  testWith(PROGRAMS, "has one node alone if no other is of interest", async () => {
    using copy = new NodeCopy(server, account, { fieldSelector: "metadata.name=node-2" });
    await until(() => server.watchCount === 1);
    server.put(newNode(3, { metadata: { name: "node-3", labels: { label: "changed" } } }));
    server.put(newNode(2, { metadata: { name: "node-2", labels: { label: "changed" } } }));
    await until(() => copy.labels.get("node-2") === "changed");
    expect(copy.names).toBe("node-2");
  });

  testWith(PROGRAMS, "is one list of the cache, and follows each event", async () => {
    using copy = new NodeCopy(server, account);
    await until(() => server.watchCount === 1);
    expect(copy.names).toBe("node-1 node-2 node-3");
    server.put(newNode(4));
    server.put(newNode(1, { metadata: { name: "node-1", labels: { label: "changed" } } }));
    server.remove("Node", "node-2");
    await until(() => copy.names === "node-1 node-3 node-4");
    expect(copy.labels.get("node-1")).toBe("changed");
    expect(server.requests).toEqual([
      "/api/v1/nodes?resourceVersion=0",
      expect.stringMatching(
        /^\/api\/v1\/nodes\?watch=1&allowWatchBookmarks=true&resourceVersion=1003&timeoutSeconds=[3-5][0-9][0-9]$/,
      ),
    ]);
    expect(copy.log).toEqual([]);
  });

  testWith(PROGRAMS, "has all pages of a list, and asks again from the start when a page is too old", async () => {
    server.pageSize = 2;
    let isTooOld = true;
    server.fault = ({ searchParams }, response) => {
      if (!searchParams.has("continue") || !isTooOld) return false;
      isTooOld = false;
      refuse(response, 410, "The provided continue parameter is too old");
      return true;
    };
    using copy = new NodeCopy(server, account);
    await until(() => copy.lists.length === 1);
    expect(copy.names).toBe("node-1 node-2 node-3");
    expect(listing()).toEqual([
      "/api/v1/nodes?resourceVersion=0",
      "/api/v1/nodes?continue=2%201003",
      "/api/v1/nodes",
      "/api/v1/nodes?continue=2%201003",
    ]);
    expect(copy.log).toEqual([]);
  });

  testWith(PROGRAMS, "goes on after the last bookmark when a watch ends, without another list", async () => {
    using copy = new NodeCopy(server, account);
    await until(() => server.watchCount === 1);
    server.sendBookmarks();
    await until(() => copy.heard === 2);
    server.compact();
    server.sendBookmarks();
    await until(() => copy.heard === 3);
    for (const end of ["endWatches", "breakWatches"] as const) {
      const before = server.requests.length;
      await Bun.sleep(SHORT_PATIENCE.lastingMs + 50);
      server[end]();
      await until(() => server.requests.length > before && server.watchCount === 1);
      expect(server.requests.at(-1)).toContain("watch=1&allowWatchBookmarks=true&resourceVersion=1006&");
    }
    server.put(newNode(4));
    await until(() => copy.names.endsWith("node-4"));
    expect(listing()).toHaveLength(1);
    expect(copy.log).toEqual([]);
  });

  testWith(PROGRAMS, "is listed without a version after 410, in an event and as a status", async () => {
    using copy = new NodeCopy(server, account);
    await until(() => server.watchCount === 1);
    server.compact();
    server.remove("Node", "node-1");
    server.compact();
    server.sendError(410, "too old resource version");
    await until(() => copy.lists.length === 2);
    expect(copy.names).toBe("node-2 node-3");
    await until(() => server.watchCount === 1);
    server.compact();
    server.endWatches();
    await until(() => copy.lists.length === 3);
    expect(listing()).toEqual(["/api/v1/nodes?resourceVersion=0", "/api/v1/nodes", "/api/v1/nodes"]);
    expect(copy.log).toEqual([]);
  });

  testWith(
    PROGRAMS,
    "is kept while the server refuses or talks nonsense: each problem is one line, its end too",
    async () => {
      using copy = new NodeCopy(server, account);
      await until(() => server.watchCount === 1);
      const faults: readonly [string, Fault][] = [
        [
          "answers 503: the server is shutting down",
          (response) => refuse(response, 503, "the server is shutting down"),
        ],
        ['answers 500: "<html>"', (response) => answer(response, 500, "<html>")],
        ["answers 403: nodes is forbidden", (response) => refuse(response, 403, "nodes is forbidden")],
        ['tells of no Node: "<html>"', (response) => answer(response, 200, "<html>\n")],
        ["ends the watch with undefined", (response) => answer(response, 200, '{"type":"ERROR"}\n')],
        ['tells of no Node: "null"', (response) => answer(response, 200, "null\n")],
        [`tells of no Node: ${JSON.stringify(POD_EVENT)}`, (response) => answer(response, 200, `${POD_EVENT}\n`)],
        [
          "tells of no Node: it has more than 16777216 bytes",
          (response) => answer(response, 200, "x".repeat(17 << 20)),
        ],
        ["redirects, and the token is for it alone", (response) => answer(response, 302, "", { Location: server.url })],
        ["does not answer: ECONNRESET", (response) => response.destroy()],
        ["ends the watch with 500: lost", (response) => answer(response, 200, `${errorEvent(500, "lost")}\n`)],
      ];
      for (const [problem, fault] of faults) {
        copy.log.length = 0;
        let count = 0;
        server.fault = ({ searchParams }, response) => {
          if (!searchParams.has("watch")) return false;
          count++;
          fault(response);
          return true;
        };
        server.endWatches();
        await until(() => count >= 3);
        expect(copy.names).toBe("node-1 node-2 node-3");
        expect(copy.log).toEqual([`Cannot follow /api/v1/nodes: ${server.url} ${problem}`]);
        server.fault = undefined;
        await until(() => copy.log.length === 2);
        expect(copy.log[1]).toBe(`Following /api/v1/nodes of ${server.url} again`);
      }
    },
  );

  testWith(PROGRAMS, "is kept when lists are nonsense", async () => {
    const half = JSON.stringify({ kind: "NodeList", metadata: { resourceVersion: "1" }, items: [newNode(9)] }).slice(
      0,
      -9,
    );
    const answers = [
      "<html>please log in</html>",
      "null",
      half,
      '{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[]}',
      '{"kind":"NodeList","metadata":{},"items":[]}',
      '{"kind":"NodeList","metadata":{"resourceVersion":"9"},"items":[null]}',
      '{"kind":"NodeList","metadata":{"resourceVersion":"9"},"items":[{}]}',
      "",
    ];
    for (const text of answers) {
      server.fault = ({ searchParams }, response) => {
        if (searchParams.has("watch")) return false;
        answer(response, 200, text);
        return true;
      };
      using copy = new NodeCopy(server, account);
      await until(() => copy.log.length === 1);
      expect(copy.log[0]).toStartWith("Cannot follow /api/v1/nodes: The answer is no NodeList: ");
      expect(copy.lists).toEqual([]);
      server.fault = undefined;
      await until(() => copy.names === "node-1 node-2 node-3");
    }
  });

  testWith(PROGRAMS, "waits as long as the server asks after 429, and longer each time without that", async () => {
    using _copy = new NodeCopy(server, account, { patience: { firstPauseMs: 40, longestPauseMs: () => 10_000 } });
    await until(() => server.watchCount === 1);
    const times: number[] = [];
    server.fault = (_url, response) => {
      times.push(performance.now());
      refuse(response, 429, "too many requests", times.length === 1 ? { "Retry-After": "1" } : {});
      return true;
    };
    await Bun.sleep(SHORT_PATIENCE.lastingMs + 50);
    server.endWatches();
    await until(() => times.length === 5);
    const pauses = times.slice(1).map((time, index) => time - times[index]!);
    expect(pauses[0]).toBeWithin(1000, 2000);
    // Each is a half to the whole of 80, 160 and 320 ms.
    expect(pauses[1]).toBeGreaterThanOrEqual(39);
    expect(pauses[2]).toBeGreaterThanOrEqual(79);
    expect(pauses[3]).toBeGreaterThanOrEqual(159);
  });

  testWith(PROGRAMS, "is asked for again within 2 s of the server's return in a small cluster", async () => {
    const { longestPauseMs } = PATIENCE;
    expect([longestPauseMs(1000), longestPauseMs(50_000)]).toEqual([6000, 30_000]);
    let count = 0;
    server.fault = (_url, response) => {
      count++;
      response.destroy();
      return true;
    };
    using copy = new NodeCopy(server, account, { patience: { firstPauseMs: 1000, longestPauseMs } });
    await until(() => count === 4);
    server.fault = undefined;
    const since = performance.now();
    await until(() => copy.lists.length === 1);
    expect(performance.now() - since).toBeLessThan(2500);
  });

  testWith(PROGRAMS, "uses a new token at once when the old one has expired", async () => {
    using copy = new NodeCopy(server, account);
    await until(() => server.watchCount === 1);
    server.token = "t2";
    writeFileSync(join(account, "token"), "t2\n");
    server.endWatches();
    await until(() => copy.log.length === 1);
    await until(() => server.watchCount === 1);
    expect(copy.log).toEqual([`Cannot follow /api/v1/nodes: ${server.url} answers 401: Unauthorized`]);
    expect(copy.lists).toHaveLength(1);
  });

  testWith(PROGRAMS, "is listed again after a half-open connection", async () => {
    using copy = new NodeCopy(server, account, { patience: { silenceMs: 300 } });
    await until(() => server.watchCount === 1);
    server.isSilent = true;
    server.put(newNode(4));
    await until(() => copy.names.endsWith("node-4"));
    expect(copy.lists).toEqual(["1003", "1004"]);
    expect(copy.log).toEqual([]);
  });

  testWith(PROGRAMS, "gives up a server that accepts, and never answers", async () => {
    server.fault = () => true;
    using copy = new NodeCopy(server, account, { patience: { answerMs: 100 } });
    await until(() => copy.log.length === 1);
    expect(copy.log[0]).toBe(`Cannot follow /api/v1/nodes: ${server.url} is silent: it has said nothing for 0.1 s`);
    server.fault = undefined;
    await until(() => copy.lists.length === 1);
  });

  testWith(PROGRAMS, "takes a list that comes slowly, a few bytes at a time", async () => {
    const text = JSON.stringify({
      kind: "NodeList",
      metadata: { resourceVersion: "1003" },
      items: [newNode(7, { metadata: { name: "node-7", uid: "u7" } })],
    });
    server.fault = ({ searchParams }, response) => {
      if (searchParams.has("watch")) return false;
      void writeSlowly(response, text);
      return true;
    };
    using copy = new NodeCopy(server, account, { patience: { answerMs: 1000 } });
    await until(() => copy.lists.length === 1);
    expect(copy.names).toBe("node-7");
    using other = new NodeCopy(server, account, { patience: { wholeMs: 50 } });
    await until(() => other.log.length === 1);
    expect(other.log[0]).toBe(`Cannot follow /api/v1/nodes: ${server.url} is slow: its answer has no end after 0.05 s`);
  });

  testWith(
    PROGRAMS,
    "uses the token of the directory that it was given, whatever is mounted at its path later",
    async () => {
      const directory = join(account, "mount");
      for (const [version, token] of [["..1", "expired"], ["..2", "t1"]] as const) {
        mkdirSync(join(directory, version), { recursive: true });
        writeFileSync(join(directory, version, "token"), token);
      }
      writeFileSync(join(directory, "ca.crt"), server.ca);
      symlinkSync("..1", join(directory, "..data"));
      symlinkSync("..data/token", join(directory, "token"));
      using opened = openFile(directory);
      renameSync(directory, join(account, "elsewhere"));
      using copy = new NodeCopy(server, `/proc/self/fd/${opened.fd}`);
      await until(() => copy.log.length === 1);
      expect(copy.log[0]).toEndWith("answers 401: Unauthorized");
      // As the kubelet replaces a token.
      symlinkSync("..2", join(account, "elsewhere/..new"));
      renameSync(join(account, "elsewhere/..new"), join(account, "elsewhere/..data"));
      await until(() => copy.names === "node-1 node-2 node-3");
    },
  );

  testWith(
    PROGRAMS,
    "is not taken back by a server that lags behind, only by the version that was stored last",
    async () => {
      server.freezeCache();
      server.put(newNode(4));
      using copy = new NodeCopy(server, account, { version: `${server.version}` });
      await until(() => copy.log.length === 1);
      // Nothing keeps from following: who waits for the list goes on waiting.
      expect(copy.problem).toBeUndefined();
      await until(() => copy.lists.length === 1);
      expect(copy.names).toEndWith("node-4");
      expect(listing()).toEqual(["/api/v1/nodes?resourceVersion=0", "/api/v1/nodes"]);
      expect(copy.log).toEqual([
        `Cannot follow /api/v1/nodes: The list of ${server.url} is old, and asked for again: it is of version 1003, and 1004 is known`,
      ]);
      await until(() => server.watchCount === 1);
      server.restore();
      server.sendError(410, "too old");
      await until(() => copy.lists.length === 2);
      expect(copy.names).toBe("node-1 node-2 node-3");
      expect(copy.log.at(-1)).toBe(
        `Cannot follow /api/v1/nodes: The API of ${server.url} went back in time, which is believed: it is of version 1003, and 1004 is known`,
      );
    },
  );

  testWith(PROGRAMS, "tells again of a problem that lasts although lists between are heard", async () => {
    using copy = new NodeCopy(server, account, { patience: { longestPauseMs: () => 100 } });
    server.fault = ({ searchParams }, response) => {
      if (!searchParams.has("watch")) return false;
      answer(response, 200, `${errorEvent(500, "lost")}\n`);
      return true;
    };
    await until(() => copy.lists.length > 2);
    await until(() => copy.problem === `${server.url} ends the watch with 500: lost`);
    expect(copy.log).toHaveLength(1);
  });

  testWith(PROGRAMS, "is listed again when an event is older than what is known", async () => {
    using copy = new NodeCopy(server, account, {});
    await until(() => server.watchCount === 1);
    server.sendText(
      `${JSON.stringify({ type: "BOOKMARK", object: { kind: "Node", metadata: { resourceVersion: "7" } } })}\n`,
    );
    await until(() => copy.lists.length === 2);
    expect(listing().at(-1)).toBe("/api/v1/nodes");
  });

  testWith(PROGRAMS, "is listed after the server was away: a backup may have been restored meanwhile", async () => {
    using copy = new NodeCopy(server, account, { patience: { silenceMs: 100_000 } });
    await until(() => server.watchCount === 1);
    server.freezeCache();
    server.put(newNode(4));
    await until(() => copy.names.endsWith("node-4"));
    await Bun.sleep(SHORT_PATIENCE.lastingMs + 50);
    server.fault = (_url, response) => {
      response.destroy();
      return true;
    };
    server.breakWatches();
    await until(() => copy.log.length === 1);
    server.restore();
    // The versions go on where others were.
    for (const index of [5, 6]) server.put(newNode(index));
    server.fault = undefined;
    await until(() => copy.lists.length === 2);
    expect(copy.names).toBe("node-1 node-2 node-3 node-5 node-6");
    expect(listing().at(-1)).toBe("/api/v1/nodes?resourceVersion=0");
  });

  testWith(PROGRAMS, "is asked for again when the receiver refuses it", async () => {
    let verdict: ListVerdict = { refused: "this node is missing" };
    using copy = new NodeCopy(server, account, { verdict: () => verdict });
    await until(() => server.requests.length >= 3);
    expect(server.requests.slice(0, 3)).toEqual(["/api/v1/nodes?resourceVersion=0", "/api/v1/nodes", "/api/v1/nodes"]);
    expect(copy.log).toEqual([
      `Cannot follow /api/v1/nodes: The list of ${server.url} is not believed: this node is missing`,
    ]);
    verdict = "taken";
    await until(() => copy.names === "node-1 node-2 node-3");
  });

  testWith(PROGRAMS, "leaves out an object that cannot be used, and says it once", async () => {
    using copy = new NodeCopy(server, account);
    await until(() => server.watchCount === 1);
    const broken = newNode(4, { spec: { podCIDR: "nonsense" } });
    server.put(broken);
    server.put(broken);
    server.put(newNode(5));
    await until(() => copy.names.endsWith("node-5"));
    expect(copy.names).toBe("node-1 node-2 node-3 node-5");
    expect(copy.log).toEqual(['Cannot use Node "node-4": nonsense is no range']);
    server.remove("Node", "node-4");
    await until(() => copy.lists.length === 2);
    server.put(broken);
    const complaints = () => copy.log.filter((line) => line.startsWith("Cannot use"));
    await until(() => complaints().length === 2);
    server.put(newNode(4));
    await until(() => copy.names === "node-1 node-2 node-3 node-4 node-5");
  });

  testWith(PROGRAMS, "waits for a token, and tells what the pod needs", async () => {
    rmSync(join(account, "token"));
    using copy = new NodeCopy(server, account);
    await until(() => copy.log.length === 1);
    expect(copy.log).toEqual([
      `Cannot follow /api/v1/nodes: "${account}/token" cannot be read: the pod needs a service account`,
    ]);
    writeFileSync(join(account, "token"), "t1\n");
    await until(() => copy.lists.length === 1);
    expect(copy.names).toBe("node-1 node-2 node-3");
  });

  testWith(PROGRAMS, "is not had from somebody else, whatever the environment says", async () => {
    const other = useOther(account);
    process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";
    try {
      using copy = new NodeCopy(server, other);
      await until(() => copy.log.length === 1);
      expect(copy.log[0]).toStartWith(`Cannot follow /api/v1/nodes: ${server.url} cannot be trusted: `);
      expect(server.requests).toEqual([]);
    } finally {
      delete process.env["NODE_TLS_REJECT_UNAUTHORIZED"];
    }
  });

  testWith(PROGRAMS, "is not had under an address that the certificate is not for", async () => {
    using copy = new NodeCopy({ url: `https://localhost:${server.port}` }, account);
    await until(() => copy.log.length === 1);
    expect(copy.log[0]).toContain("cannot be trusted: ERR_TLS_CERT_ALTNAME_INVALID: its certificate must be");
    expect(server.requests).toEqual([]);
  });

  testWith(PROGRAMS, "ends with its signal at once, whatever it waits for", async () => {
    const answers: readonly Fault[] = [() => {}, (response) => refuse(response, 429, "", { "Retry-After": "100" })];
    for (const fault of [...answers, undefined]) {
      server.fault = fault && ((_url, response) => {
        fault(response);
        return true;
      });
      const before = server.requests.length;
      const copy = new NodeCopy(server, account);
      await until(() => fault ? server.requests.length > before : server.watchCount === 1);
      await Bun.sleep(20);
      copy[Symbol.dispose]();
      await copy.ended;
      await until(() => server.watchCount === 0);
    }
  });
});
