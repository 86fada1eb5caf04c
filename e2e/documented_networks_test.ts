/** Networks that README.md and docs show: engines read them as they stand, and their containers reach the outside. */
import { describe, expect, test } from "bun:test";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DEFAULT_NETWORK } from "../runtime/default_network.ts";
import { NETWORK_DRIVERS } from "../networks/new_network.ts";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { CNI_UNDER_TEST, testWith } from "../testing/binary.ts";
import { ENGINE_PROGRAMS, useEngines } from "../testing/engines.ts";
import type { RunningContainer, TestNode } from "../testing/node.ts";
import { requestTcp, serveTcpAndUdp } from "../testing/traffic.ts";

/** A block of JSON in a page. */
interface Block {
  readonly page: string;
  readonly text: string;
}

const pagesIn = (folder: string): string[] =>
  readdirSync(join(REPOSITORY_ROOT, folder)).filter((name) => name.endsWith(".md")).map((name) => join(folder, name));

const BLOCKS: readonly Block[] = ["README.md", ...pagesIn("docs"), ...pagesIn("docs/plugins")].flatMap((page) =>
  Array.from(
    readFileSync(join(REPOSITORY_ROOT, page), "utf8").matchAll(/^```json\n(.*?)^```$/gms),
    ([, text = ""]) => ({ page, text }),
  )
);
/** Of a whole file. */
const FILES = BLOCKS.flatMap(({ page, text }) => {
  const { name, plugins } = parseOrNothing(text);
  return plugins === undefined ? [] : [{ page, text, name: String(name) }];
});
/** The page of lint shows files that have a mistake less, and nothing else. */
const EXAMPLES_OF_RULES = FILES.filter(({ page }) => page === "docs/lint.md");
const NETWORKS = [
  ...FILES.filter(({ page }) => page !== "docs/lint.md"),
  { page: "cni.conflist(5)", text: DEFAULT_NETWORK, name: "default" },
];
/** An entry of `plugins`. */
const ENTRIES = BLOCKS.flatMap(({ page, text }) => {
  const { type } = parseOrNothing(text);
  return type === undefined ? [] : [{ page, text, name: page.replace(/^.*\/|\.md$/g, "") }];
});

function parseOrNothing(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

test("each block of JSON is JSON without comments", () => {
  expect(NETWORKS.map(({ page }) => page)).toEqual(expect.arrayContaining(["README.md", "docs/operations.md"]));
  expect(BLOCKS.filter(({ text }) => Object.keys(parseOrNothing(text)).length === 0)).toEqual([]);
});

describe("networks of the documentation", () => {
  const engines = useEngines();

  testWith(ENGINE_PROGRAMS, "podman lists them all, and has nothing to say about any", () => {
    const { node } = engines;
    using resources = new DisposableStack();
    const listOf = (text: string, name: string) => `{ "cniVersion": "1.0.0", "name": "${name}", "plugins": [${text}] }`;
    for (const { name, text } of NETWORKS) resources.use(networkFile(node, `10-${name}.conflist`, text));
    for (const { name, text } of ENTRIES) resources.use(networkFile(node, `20-${name}.conflist`, listOf(text, name)));
    expect(podmanNetworks()).toEqual([...NETWORKS, ...ENTRIES].map(({ name }) => name).concat("podman").sort());
  });

  testWith(ENGINE_PROGRAMS, "podman lists each good example of a lint rule", () => {
    expect(EXAMPLES_OF_RULES.length).toBeGreaterThan(20);
    for (const { name, text } of EXAMPLES_OF_RULES) {
      using _ = networkFile(engines.node, `10-${name}.conflist`, text);
      expect(podmanNetworks()).toEqual(["podman", name].sort());
    }
  });

  describe.each(NETWORKS)("of $page, $name", ({ name, text }) => {
    testWith(
      ENGINE_PROGRAMS,
      "containers of podman and containerd reach the outside, ports are published",
      async () => {
        const { node, podman, containerd } = engines;
        using _ = networkFile(node, `10-${name}.conflist`, text);
        {
          using p = podman.start("p", "--network", name, "-p", "8080:80");
          await expectReached(p);
          using _p = await serveTcpAndUdp(p.netns, "p");
          expect(await requestTcp(node.outside, "192.0.2.1", 8080)).toBe("p 192.0.2.2");
          podman.podman("rm", "-f", "-t", "0", "p");
        }
        // ctr uses the network that sorts first, and not that of podman.
        using c = await containerd.run("c");
        expect(c.ip).not.toStartWith("10.88.");
        await expectReached(c);
        expect(await c.kill()).toBe("");
      },
    );
  });

  testWith(ENGINE_PROGRAMS, "podman has nothing to say about a network of cni network create either", () => {
    const { node, podman } = engines;
    const network = (...words: string[]) => node.run(CNI_UNDER_TEST, "network", ...words);
    for (const driver of NETWORK_DRIVERS) {
      const subnet = driver.endsWith("vlan") ? ["--subnet", "192.0.2.0/24", "--option", "parent=up0"] : [];
      const path = network("create", driver, "--driver", driver, ...subnet).trim();
      expect(JSON.parse(node.run("cat", path))).toMatchObject({ name: driver, cniVersion: "1.0.0" });
      expect(podmanNetworks()).toEqual([driver, "podman"].sort());
      podman.podman("network", "inspect", driver);
      network("rm", driver);
    }
  });

  /** With what podman says on stderr. */
  const podmanNetworks = () =>
    engines.node.run("sh", "-c", "podman network ls --format '{{.Name}}' 2>&1").trim().split("\n").sort();

  async function expectReached({ netns }: RunningContainer) {
    using _ = await serveTcpAndUdp(engines.node.outside, "outside");
    expect(await requestTcp(netns, "192.0.2.2", 80)).toBe("outside 192.0.2.1");
  }
});

/** There until the scope ends. */
function networkFile({ networks }: TestNode, name: string, text: string): Disposable {
  const path = join(networks, name);
  writeFileSync(path, text);
  return { [Symbol.dispose]: () => rmSync(path) };
}
