import { expect } from "bun:test";
import { inNetns } from "../../ffi/testing.ts";
import * as link from "../../ffi/route/link.ts";
import { anything } from "../spec/schema.ts";
import { plugin } from "./plugin.ts";
import { sandboxTest } from "./testing.ts";

sandboxTest("serve() undoes a failed ADD while the container's namespace is still open", [], ({ call, container }) => {
  const failing = plugin({
    name: "failing",
    about: "Sets an MTU and fails",
    config: anything,
    add({ netns, undo }) {
      undo.defer(() => link.set(netns.route, "lo", { mtu: 65536 }));
      link.set(netns.route, "lo", { mtu: 1400 });
      throw new Error("Cannot go on: this is a test");
    },
    del() {},
    check() {},
  });
  expect(() => call(failing, "ADD", {})).toThrow(/^Cannot go on: this is a test$/);
  expect(JSON.parse(inNetns(container, "ip", "-j", "link", "show", "lo"))[0].mtu).toBe(65536);
});
