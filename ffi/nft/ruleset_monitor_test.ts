import { expect, spyOn, test } from "bun:test";
import { runShellInNetns } from "../../testing/netns.ts";
import { createNetns } from "../netns/netns.ts";
import { cstr } from "../netlink/codec.ts";
import { isChangeOf, openRulesetMonitor, type RulesetCommit } from "./ruleset_monitor.ts";
import { NFPROTO_INET, NFT_MSG_NEWCHAIN, NFT_MSG_NEWRULE } from "./uapi.ts";

test("after a gap, no commit gets changes of another one", () => {
  using host = createNetns();
  const nft = (...lines: readonly string[]) => runShellInNetns(host, `nft -f - <<'END'\n${lines.join("\n")}\nEND`);
  const addresses = Array.from({ length: 2000 }, (_, i) => `10.0.${i >> 8}.${i & 255}`);
  const rules = addresses.map((address) => `add rule ip t c ip saddr ${address} drop`);
  nft("add table ip t", "add chain ip t c", "add chain ip t d", "add rule ip t d drop", ...rules);
  using monitor = host.run(() => openRulesetMonitor(4096, () => true));
  const commits: RulesetCommit[] = [];
  const read = () => monitor.read((commit) => void commits.push(commit));
  // The first messages wait, the others find no room.
  nft("flush chain ip t c");
  expect([read(), commits]).toEqual([false, []]);
  nft("flush chain ip t d");
  expect([read(), commits]).toEqual([false, []]);
  nft("delete chain ip t d");
  expect([read(), commits]).toEqual([true, [expect.anything()]]);
  expect(commits[0]).toMatchObject({ committer: { program: "nft" }, changes: [{ table: "t", name: "d" }] });
});

test("what other families change is not decoded", () => {
  using host = createNetns();
  const table = "t { chain a { accept; }; chain b { jump a; }; }";
  using monitor = host.run(() => openRulesetMonitor(1 << 20, isChangeOf([{ family: NFPROTO_INET, table: "t" }])));
  using readName = spyOn(cstr, "read");
  const found = ["ip", "inet"].map((family) => {
    runShellInNetns(host, `nft 'table ${family} ${table}'`);
    readName.mockClear();
    const changes: (readonly unknown[])[] = [];
    monitor.read((commit) => void changes.push(commit.changes.map(({ operation, name }) => [operation, name])));
    return { changes, names: readName.mock.calls.length };
  });
  const inBoth = (operation: number) => [[operation, "a"], [operation, "b"]];
  // The program's name. Of each chain and rule, the table's and the chain's.
  expect(found).toEqual([
    { changes: [[]], names: 1 },
    { changes: [[...inBoth(NFT_MSG_NEWCHAIN), ...inBoth(NFT_MSG_NEWRULE)]], names: 9 },
  ]);
});
