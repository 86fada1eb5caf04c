import type { CommandGroup } from "../command.ts";

export const CNI: CommandGroup = {
  name: "cni",
  summary: "A whole CNI installation in one program: the runtime and its plugins",
  commands: {
    run: () => import("./run.ts"),
    lint: () => import("./lint.ts"),
    doctor: () => import("./doctor.ts"),
    netns: () => import("./netns.ts"),
    network: () => import("./network.ts"),
    policy: () => import("./policy.ts"),
    show: () => import("./show.ts"),
    install: () => import("./install.ts"),
    uninstall: () => import("./uninstall.ts"),
    serve: () => import("./serve.ts"),
    explain: () => import("./explain.ts"),
    schema: () => import("./schema.ts"),
    plugin: () => import("./plugin.ts"),
    completion: () => import("./completion.ts"),
    man: () => import("./man.ts"),
    "complete-words": () => import("./complete_words.ts"),
    "serve-behind": () => import("./serve_behind.ts"),
    "serve-part": () => import("./serve_part.ts"),
    "serve-worker": () => import("./serve_worker.ts"),
    "tap-device": () => import("./tap_device.ts"),
    help: () => import("./help.ts"),
    version: () => import("./version.ts"),
  },
  aliases: { "--version": "version", "-v": "version" },
  examples: [
    {
      command: "cni netns add web && cni run add default web -p 8080:80",
      about: 'attach the namespace "web" to the built-in network, and publish its port 80 as port 8080 of the host',
    },
  ],
  details: async () => (await import("./plugin.ts")).formatPluginList(),
};
