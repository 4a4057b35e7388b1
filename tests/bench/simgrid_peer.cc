// The same flows in SimGrid: what our flow simulator is compared with, in time taken and in times foretold.
//
// Reads from standard input, all numbers in plain text:
//   L, then of each link its bytes a second and its latency in seconds;  H hosts;
//   R, then of each route its two hosts, its number of links and these;
//   K, then of each kind of step its number of flows, and of each its route and bytes;  S, then of each step its kind.
// Runs the steps one after the other (`lock-step`), or each host by itself, which sends in its next step when it
// has received in this one (`own-receive`; at most one receive a host and step). Prints when each step ended and what
// the run took; making the platform is not counted.
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <simgrid/s4u.hpp>

namespace sg4 = simgrid::s4u;

namespace {

struct Route {
  int from, to;
};
struct Flow {
  int route;
  std::uint64_t size_bytes;
};
struct World {
  std::vector<sg4::Host*> hosts;
  std::vector<Route> routes;
  std::vector<std::vector<Flow>> kinds;
  std::vector<int> steps;
  std::vector<double> ends;
};

template <class T>
T next() {
  T value;
  if (!(std::cin >> value)) {
    std::cerr << "simgrid-peer: the input ends too early\n";
    std::exit(2);
  }
  return value;
}

World read() {
  World world;
  auto* zone = sg4::create_full_zone("all");
  std::vector<const sg4::Link*> links;
  for (int i = 0, all = next<int>(); i < all; ++i) {
    auto* link = zone->create_link("l" + std::to_string(i), next<double>());
    link->set_latency(next<double>());
    links.push_back(link->seal());
  }
  for (int i = 0, all = next<int>(); i < all; ++i) {
    world.hosts.push_back(zone->create_host("h" + std::to_string(i), 1e9));
    world.hosts.back()->seal();
  }
  for (int i = 0, all = next<int>(); i < all; ++i) {
    const int from = next<int>(), to = next<int>();
    std::vector<sg4::LinkInRoute> path;
    for (int j = 0, hops = next<int>(); j < hops; ++j) path.emplace_back(links[next<std::size_t>()]);
    zone->add_route(world.hosts[from]->get_netpoint(), world.hosts[to]->get_netpoint(), nullptr, nullptr, path, false);
    world.routes.push_back({from, to});
  }
  for (int i = 0, all = next<int>(); i < all; ++i) {
    auto& flows = world.kinds.emplace_back();
    for (int j = 0, count = next<int>(); j < count; ++j) {
      const int route = next<int>();
      flows.push_back({route, next<std::uint64_t>()});
    }
  }
  for (int i = 0, all = next<int>(); i < all; ++i) world.steps.push_back(next<int>());
  zone->seal();
  return world;
}

void lock_step(World& world) {
  for (const int kind : world.steps) {
    std::vector<sg4::CommPtr> flows;
    for (const Flow& flow : world.kinds[kind]) {
      const Route& route = world.routes[flow.route];
      flows.push_back(sg4::Comm::sendto_async(world.hosts[route.from], world.hosts[route.to], flow.size_bytes));
    }
    sg4::Comm::wait_all(flows);
    world.ends.push_back(sg4::Engine::get_clock());
  }
}

// A host sends in a step when what it should have received in earlier ones is there. Each flow has an actor that tells
// its receiver of its end.
void own_receive(World& world, int self, std::vector<std::vector<sg4::SemaphorePtr>>& arrived) {
  for (std::size_t step = 0; step < world.steps.size(); ++step) {
    bool receives = false;
    for (const Flow& flow : world.kinds[world.steps[step]]) {
      const Route route = world.routes[flow.route];
      receives |= route.to == self;
      if (route.from != self) continue;
      sg4::Actor::create("flow", world.hosts[self], [&world, &arrived, route, flow, step] {
        sg4::Comm::sendto(world.hosts[route.from], world.hosts[route.to], flow.size_bytes);
        world.ends[step] = std::max(world.ends[step], sg4::Engine::get_clock());
        arrived[step][route.to]->release();
      });
    }
    if (receives) arrived[step][self]->acquire();
  }
}

double cpu_s() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * time.tv_usec; };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  // Only shares of bandwidth, as in our model: without TCP's window, factors, and cross traffic.
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/TCP-gamma:0");
  sg4::Engine::set_config("network/crosstraffic:0");
  const std::string start = argc > 1 ? argv[1] : "lock-step";
  World world = read();
  std::vector<std::vector<sg4::SemaphorePtr>> arrived(world.steps.size());
  if (start == "lock-step") {
    sg4::Actor::create("all", world.hosts[0], [&world] { lock_step(world); });
  } else {
    world.ends.assign(world.steps.size(), 0);
    for (auto& step : arrived) {
      for (std::size_t host = 0; host < world.hosts.size(); ++host) step.push_back(sg4::Semaphore::create(0));
    }
    for (std::size_t host = 0; host < world.hosts.size(); ++host) {
      sg4::Actor::create("rank", world.hosts[host],
                         [&world, &arrived, host] { own_receive(world, static_cast<int>(host), arrived); });
    }
  }
  const double cpu_before_s = cpu_s();
  const auto before = std::chrono::steady_clock::now();
  engine.run();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - before;
  std::cout.precision(17);
  std::cout << "{\"wall_s\": " << wall.count() << ", \"cpu_s\": " << cpu_s() - cpu_before_s
            << ", \"time_s\": " << sg4::Engine::get_clock() << ", \"step_end_s\": [";
  for (std::size_t i = 0; i < world.ends.size(); ++i) std::cout << (i > 0 ? ", " : "") << world.ends[i];
  std::cout << "]}\n";
}
