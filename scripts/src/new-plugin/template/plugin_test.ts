import { expect } from "bun:test";
import { earlierResult, findShownLink } from "../../../../testing/fixture_configs.ts";
import { runIp } from "../../../../testing/netns.ts";
import { sandboxTest } from "../../../../testing/sandbox.ts";
import tested from "./plugin.ts";

sandboxTest("new-plugin ADD puts the interface into the group, CHECK looks, DEL takes it out", [], (sandbox) => {
  const { call, container } = sandbox;
  runIp(container, "link add eth0 type veth peer name peer0");
  const config = { group: 7, prevResult: earlierResult(sandbox) };
  call(tested, "ADD", config);
  expect(findShownLink(container).group).toBe("7");
  call(tested, "CHECK", config);
  expect(() => call(tested, "CHECK", { ...config, group: 8 })).toThrow('group of "eth0" is 7, expected 8');
  call(tested, "DEL", config);
  expect(findShownLink(container).group).toBe("default");
  expect(() => call(tested, "CHECK", config)).toThrow('group of "eth0" is 0, expected 7');
});
