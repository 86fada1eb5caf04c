import { expect } from "bun:test";
import { siteTest } from "../testing/policy_site.ts";
import { runInNetns } from "../testing/netns.ts";
import { countingNetns } from "../testing/netlink_counts.ts";
import { Attachments } from "./attachments.ts";

siteTest("routed", "who is attached is read again after a change of the ruleset alone", (site) => {
  const counts = { sends: 0, messages: 0, dumps: 0, received: 0 };
  const attachments = new Attachments(countingNetns(site.host, counts));
  const look = () => {
    counts.dumps = 0;
    const { attached, isWhole } = attachments.look();
    return { pods: new Set(attached.map(({ containerId }) => containerId)).size, isWhole, isRead: counts.dumps > 0 };
  };
  const pod = site.newPod(2);
  site.add(pod);
  expect(look()).toMatchObject({ pods: 1, isRead: true });
  expect(look()).toEqual({ pods: 1, isWhole: true, isRead: false });
  runInNetns(site.host, "nft", "flush", "ruleset");
  expect(look()).toEqual({ pods: 1, isWhole: false, isRead: true });
  // The pods' links are looked at until their guard is back.
  expect(look().isRead).toBe(true);
  expect(attachments.restore()).toBe(true);
  expect(look()).toMatchObject({ pods: 1, isRead: true });
  runInNetns(site.host, "ip", "link", "del", pod.link);
  expect(look()).toMatchObject({ pods: 0, isRead: true });
  return Promise.resolve();
});
