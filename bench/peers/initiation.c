/*
 * Loads the programs of xdp_initiation.c and keeps them loaded.
 *
 *     initiation OBJECT IFACE     fills the maps, prints `NAME ID` for each program, then
 *                                 `ready`; ends when standard input does
 *     initiation OBJECT           prints for each program whose name begins with `may_`
 *                                 whether the verifier takes it: `NAME yes`, or `NAME no`
 *                                 and the verifier's reason
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <err.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const unsigned long long arena_at = 1ull << 44;

static char verifier_log[1 << 20];

static int silent(enum libbpf_print_level level, const char *format, va_list values)
{
    (void)level, (void)format, (void)values;
    return 0;
}

static struct bpf_object *open_object(const char *file)
{
    struct bpf_object *object = bpf_object__open_file(file, NULL);

    if (object == NULL)
        err(1, "cannot open `%s`", file);
    /* libbpf 1.1 knows no arena. */
    bpf_map__set_map_extra(bpf_object__find_map_by_name(object, "arena"), arena_at);
    return object;
}

static int program_fd(struct bpf_object *object, const char *name)
{
    return bpf_program__fd(bpf_object__find_program_by_name(object, name));
}

static void fill_map(struct bpf_object *object, struct bpf_map *map, unsigned ifindex)
{
    const char *name = bpf_map__name(map);
    struct bpf_devmap_val value = {.ifindex = ifindex};

    for (__u32 key = 0; key < bpf_map__max_entries(map); key++) {
        value.bpf_prog.fd = 0;
        if (strncmp(name, "each", 4) == 0)
            value.bpf_prog.fd = program_fd(object, "each");
        if (strcmp(name, "pair") == 0)
            value.bpf_prog.fd = program_fd(object, key == 0 ? "first" : "second");
        if (bpf_map_update_elem(bpf_map__fd(map), &key, &value, 0) != 0)
            err(1, "cannot fill `%s`", name);
    }
}

static int load(const char *file, unsigned ifindex)
{
    struct bpf_object *object = open_object(file);

    if (bpf_object__load(object) != 0)
        err(1, "cannot load `%s`", file);

    struct bpf_map *map;
    bpf_object__for_each_map(map, object)
        if (bpf_map__type(map) == BPF_MAP_TYPE_DEVMAP)
            fill_map(object, map, ifindex);

    map = bpf_object__find_map_by_name(object, "arena");
    char *page = mmap((void *)arena_at, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      bpf_map__fd(map), 0);
    if (page == MAP_FAILED)
        err(1, "cannot map the arena");
    /* Stores to a page that nobody has touched are dropped. */
    *(volatile char *)page = 0;

    struct bpf_program *program;
    bpf_object__for_each_program(program, object) {
        struct bpf_prog_info info = {0};
        __u32 bytes = sizeof(info);
        if (!bpf_program__autoload(program))
            continue;
        if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &bytes) != 0)
            err(1, "cannot ask for the id of `%s`", bpf_program__name(program));
        printf("%s %u\n", bpf_program__name(program), info.id);
    }
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    bpf_object__close(object);
    return 0;
}

/* The verifier's last words but its statistics. */
static const char *reason(void)
{
    char *last = strstr(verifier_log, "\nprocessed ");

    if (last != NULL)
        *last = 0;
    last = strrchr(verifier_log, '\n');
    return last != NULL ? last + 1 : verifier_log;
}

static int ask(const char *file)
{
    struct bpf_object *all = open_object(file);
    struct bpf_program *program, *other;

    libbpf_set_print(silent);
    bpf_object__for_each_program(program, all) {
        const char *name = bpf_program__name(program);
        if (strncmp(name, "may_", 4) != 0)
            continue;
        struct bpf_object *object = open_object(file);
        bpf_object__for_each_program(other, object)
            bpf_program__set_autoload(other, strcmp(bpf_program__name(other), name) == 0);
        other = bpf_object__find_program_by_name(object, name);
        bpf_program__set_log_buf(other, verifier_log, sizeof(verifier_log));
        verifier_log[0] = 0;
        bpf_program__set_log_level(other, 1);
        int taken = bpf_object__load(object) == 0;
        printf(taken ? "%s yes\n" : "%s no %s\n", name, taken ? "" : reason());
        bpf_object__close(object);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return ask(argv[1]);
    if (argc != 3)
        errx(2, "usage: initiation OBJECT [IFACE]");
    unsigned ifindex = if_nametoindex(argv[2]);
    if (ifindex == 0)
        err(1, "no interface `%s`", argv[2]);
    return load(argv[1], ifindex);
}
