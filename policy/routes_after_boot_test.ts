import { expect, test } from "bun:test";
import { StatusFile } from "../cluster/status_file.ts";
import { useDirectory } from "../testing/directory.ts";
import { until } from "../testing/netns.ts";
import { untilRoutesAreBack } from "./routes_after_boot.ts";

const directory = useDirectory("cni-routes-");

test("pods wait until the nodes that are stored are in the kernel", async () => {
  const status = new StatusFile(directory, () => {});
  let areBack = false;
  const waiting = untilRoutesAreBack(directory).then(() => void (areBack = true));
  await Bun.sleep(150);
  status.write({ isSynced: false }, undefined);
  await Bun.sleep(150);
  expect(areBack).toBeFalse();
  status.write({ isSynced: true }, undefined);
  await until(() => areBack, 1000);
  await waiting;
});

test("pods wait for less time than their plugins, and not for an earlier part", async () => {
  const started = performance.now();
  new StatusFile(directory, () => {}).write({ isSynced: false }, undefined);
  await untilRoutesAreBack(directory);
  expect(performance.now() - started).toBeWithin(3900, 4900);
}, 10_000);
