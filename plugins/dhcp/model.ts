import type { PluginModel } from "../lib/model/plugin_model.ts";

const model: PluginModel = {
  commands: {
    async daemon(argv, env) {
      const { runDhcpDaemon } = await import("./daemon.ts");
      return runDhcpDaemon(argv, env);
    },
  },
  async serve({ count, ...options }) {
    const { serveDhcp } = await import("./server/serve.ts");
    serveDhcp({ ...options, countMessage: (type) => count(type, 1) });
  },
};
export default model;
