/** podman 4 with its CNI backend, as a real client of the links. */
import { describe, expect } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns } from "../ffi/netns/netns.ts";
import { requestTcp, serveTcpAndUdp } from "../testing/traffic.ts";
import { buildRootFilesystem } from "../scripts/src/image/main.ts";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { createEntry, findEntry, removeEntry } from "../runtime/cache.ts";
import { CNI_PROGRAM, CNI_UNDER_TEST, testWith } from "../testing/binary.ts";
import { usePodman } from "../testing/engines.ts";
import { PODMAN_NETWORK, PODMAN_PROGRAMS } from "../testing/podman.ts";

/** Keys in their order, and which values are text, whatever the values; without what only newer libcni writes, or none. */
function shapeOf(text: string): string {
  const { netns: _netns, bootId: _bootId, netnsCookie: _cookie, ...node } = JSON.parse(text);
  return JSON.stringify(
    node,
    (key, value) => typeof value === "string" ? "" : key === "hostPort" ? 0 : key === "cniArgs" ? [] : value,
  );
}

describe("podman", () => {
  const used = usePodman(PODMAN_NETWORK);

  /** The cables to containers. */
  const links = () => (used.node.run("ip", "-o", "link", "show", "type", "veth").match(/^\d+: (?!up0)/gm) ?? []).length;
  /** Starts a container with a published port. @returns its id */
  const start = (name: string, port: number): string => {
    using container = used.podman.start(name, "--network", "podtest", "-p", `${port}:80`);
    return container.id;
  };

  testWith(
    PODMAN_PROGRAMS,
    "runs a container with a published port that answers, and leaves nothing of it",
    async () => {
      const { node, podman } = used;
      const { run, state, host } = node;
      using container = podman.start("w1", "--network", "podtest", "-p", "8080:80");
      const { id } = container;
      {
        using _server = await serveTcpAndUdp(container.netns, "w1");
        expect(await requestTcp(host, "10.91.0.2", 80)).toBe("w1 10.91.0.1");
        expect(await requestTcp(host, "127.0.0.1", 8080)).toBe("w1 10.91.0.1");
      }
      expect(links()).toBe(1);
      expect(run("nft", "list", "ruleset")).toContain(`podtest ${id} eth0`);

      run("podman", "rm", "-f", "-t", "0", "w1");
      expect(links()).toBe(0);
      expect(run("nft", "list", "ruleset")).not.toContain(id);
      expect(readdirSync(join(state, "networks/podtest")).filter((name) => name.startsWith("10."))).toEqual([]);
      expect(existsSync(join(state, `results/podtest-${id}-eth0`))).toBe(false);
    },
  );

  /** Runs the runtime where podman runs, without a configuration, as a node would after podman's was removed. */
  const cni = (...argv: string[]) => {
    const { run, bin } = used.node;
    return run(CNI_UNDER_TEST, "run", ...argv, "--conf-dir", "/nonexistent", "--plugin-dir", bin);
  };

  testWith(
    PODMAN_PROGRAMS,
    "is followed by cni run, which reads what it remembered, byte by byte, checks it and detaches it",
    () => {
      const { node } = used;
      const { run, directory, state } = node;
      const id = start("w2", 8082);
      const key = { network: "podtest", containerId: id, ifname: "eth0" };
      const entry = findEntry(state, key)!;
      // A copy: matchers are put into what they were compared with.
      expect(structuredClone(entry)).toMatchObject({
        ...key,
        netns: expect.stringMatching(/^\/run\/netns\//),
        config: readFileSync(join(node.networks, "podtest.conflist"), "utf8"),
        args: expect.arrayContaining([["IgnoreUnknown", "1"], ["K8S_POD_NAME", "w2"]]),
        capabilityArgs: { portMappings: [{ hostPort: 8082, containerPort: 80, protocol: "tcp" }] },
        result: { cniVersion: "0.4.0" },
      });
      const copies = join(directory, "copies");
      // This libcni does not write the namespace down, ours does.
      const { netns, ...written } = entry;
      createEntry(copies, written);
      const [ours, theirs] = [copies, state].map((each) =>
        readFileSync(join(each, `results/podtest-${id}-eth0`), "utf8")
      );
      // Ours says besides which boot it was.
      expect(ours!.replace(/,"bootId":"[0-9a-f-]{36}"\}$/, "}")).toBe(theirs!);
      expect(ours).not.toBe(theirs);

      expect(JSON.parse(cni("list", "--json"))).toMatchObject([{ ...key, state: "attached", netns: netns! }]);
      cni("check", "podtest", netns!, "--container-id", id);
      cni("del", "podtest", "--container-id", id);
      expect(links()).toBe(0);
      expect(run("nft", "list", "ruleset")).not.toContain(id);
      expect(readdirSync(join(state, "results"))).toEqual([]);
      run("podman", "rm", "-f", "-t", "0", "w2");
    },
  );

  testWith(PODMAN_PROGRAMS, "detaches by what cni run wrote, configuration and result included", () => {
    const { node } = used;
    const { run, directory, state } = node;
    const id = start("w3", 8083);
    const key = { network: "podtest", containerId: id, ifname: "eth0" };
    const entry = findEntry(state, key)!;
    const record = join(directory, "record");
    writeFileSync(join(directory, "bin/rec"), `#!/bin/sh\ncat >>${record}; echo "$CNI_COMMAND" >>${record}\n`, {
      mode: 0o755,
    });
    const list = JSON.parse(entry.config);
    const config = JSON.stringify({ ...list, plugins: [...list.plugins, { type: "rec", "<&>": "é" }] });
    removeEntry(state, key, () => {});
    createEntry(state, { ...entry, config });
    run("podman", "rm", "-f", "-t", "0", "w3");
    const [document, command] = readFileSync(record, "utf8").split(/(?<=\})(?=DEL\n$)/);
    expect(command).toBe("DEL\n");
    expect(JSON.parse(document!)).toMatchObject({ type: "rec", "<&>": "é", prevResult: entry.result as object });
    expect(links()).toBe(0);
    expect(run("nft", "list", "ruleset")).not.toContain(id);
    expect(readdirSync(join(state, "results"))).toEqual([]);
  });

  testWith(PODMAN_PROGRAMS, "remembers the same things in the same order as cni run", () => {
    const { node } = used;
    const { run, directory, state } = node;
    const id = start("w4", 8084);
    using container = createNetns();
    const portMappings = [{ hostPort: 8085, containerPort: 80, protocol: "tcp" }];
    const capabilities = JSON.stringify({ portMappings, aliases: { podtest: ["x"] } });
    run(
      ...[
        CNI_UNDER_TEST,
        "run",
        "add",
        join(node.networks, "podtest.conflist"),
        container.path,
        "--container-id",
        "ours",
      ],
      ...[
        "--plugin-dir",
        join(directory, "bin"),
        "--args",
        "IgnoreUnknown=1;K8S_POD_NAME=x",
        "--cap-args",
        capabilities,
      ],
    );
    const [theirs, ours] = [id, "ours"].map((each) =>
      shapeOf(readFileSync(join(state, `results/podtest-${each}-eth0`), "utf8"))
    );
    expect(ours).toBe(theirs!);
    cni("del", "podtest", "--container-id", "ours");
    run("podman", "rm", "-f", "-t", "0", "w4");
    expect(readdirSync(join(state, "results"))).toEqual([]);
  });

  testWith(PODMAN_PROGRAMS, "builds the image of the Containerfile, in which the chain attaches a container", () => {
    const { node } = used;
    const { run, directory } = node;
    buildRootFilesystem(join(directory, "context/dist/image"), CNI_PROGRAM);
    run(
      "podman",
      "build",
      "-q",
      "-t",
      "cni:test",
      "-f",
      join(REPOSITORY_ROOT, "Containerfile"),
      join(directory, "context"),
    );
    expect(run("podman", "run", "--rm", "--network", "none", "cni:test", "--version")).toMatch(/^cni v\d/);

    using container = createNetns();
    const network = join(directory, "thin.conflist");
    writeFileSync(network, JSON.stringify({ ...PODMAN_NETWORK, name: "thin", cniVersion: "1.1.0" }));
    const capabilities = JSON.stringify({ portMappings: [{ hostPort: 8081, containerPort: 80, protocol: "tcp" }] });
    const cni = (verb: string) =>
      run(
        ...[
          "podman",
          "run",
          "--rm",
          "--privileged",
          "--network",
          "host",
          "--pid",
          "host",
          "--env",
          "PATH=/nonexistent",
        ],
        ...["-v", `${network}:/thin.conflist:ro`, "-v", `${join(directory, "thin-state")}:/var/lib/cni`],
        ...[
          "cni:test",
          "run",
          verb,
          "/thin.conflist",
          container.path,
          "--container-id",
          "thin1",
          "--cap-args",
          capabilities,
        ],
      );
    mkdirSync(join(directory, "thin-state"));
    expect(JSON.parse(cni("add")).ips).toMatchObject([{ address: "10.91.0.2/24" }]);
    expect(run("nft", "list", "ruleset")).toContain("thin thin1 eth0");
    cni("check");
    cni("del");
    expect(run("nft", "list", "ruleset")).not.toContain("thin1");
  });
});
