import { expect, test } from "bun:test";
import { parseResolvConf } from "./resolv_conf.ts";

test("parseResolvConf() reads all keywords; lists add up, the last domain counts", () => {
  const text = `
    # a comment
    ; another
    domain old.example
nameserver 192.0.2.1 192.0.2.2
nameserver\tfd00::53
domain example.com
search a.example b.example
search c.example
options ndots:2 timeout:1
options rotate\r
sortlist 10.0.0.0
nameserver
`;
  expect(parseResolvConf(text)).toEqual({
    nameservers: ["192.0.2.1", "fd00::53"],
    domain: "example.com",
    search: ["a.example", "b.example", "c.example"],
    options: ["ndots:2", "timeout:1", "rotate"],
  });
});

test("parseResolvConf() leaves out what there is none of", () => {
  expect(parseResolvConf("#nameserver 192.0.2.1\n")).toEqual({});
  expect(parseResolvConf("nameserver 192.0.2.1")).toEqual({ nameservers: ["192.0.2.1"] });
});
