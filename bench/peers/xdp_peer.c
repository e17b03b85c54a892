/*
 * Loads the hand-written XDP programs and keeps them loaded.
 *
 *     xdp_peer OBJECT [PROGRAM IFACE]
 *
 * Prints `NAME ID` for each program of the object, then `ready`; attaches
 * PROGRAM to IFACE first if both are given. Ends, and takes everything down,
 * when standard input does. The benchmark runs the programs by their ids, so
 * that one piece of code measures both sides.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <err.h>
#include <net/if.h>
#include <stdio.h>

static unsigned id_of(const struct bpf_program *program)
{
    struct bpf_prog_info info = {0};
    __u32 bytes = sizeof(info);

    if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &bytes) != 0)
        err(1, "cannot ask for the id of `%s`", bpf_program__name(program));
    return info.id;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 4)
        errx(2, "usage: xdp_peer OBJECT [PROGRAM IFACE]");

    struct bpf_object *object = bpf_object__open_file(argv[1], NULL);
    if (object == NULL)
        err(1, "cannot open `%s`", argv[1]);
    if (bpf_object__load(object) != 0)
        err(1, "cannot load `%s`", argv[1]);

    struct bpf_link *link = NULL;
    if (argc == 4) {
        struct bpf_program *program = bpf_object__find_program_by_name(object, argv[2]);
        unsigned ifindex = if_nametoindex(argv[3]);
        if (program == NULL)
            errx(1, "`%s` has no program `%s`", argv[1], argv[2]);
        if (ifindex == 0)
            err(1, "no interface `%s`", argv[3]);
        link = bpf_program__attach_xdp(program, (int)ifindex);
        if (link == NULL)
            err(1, "cannot attach `%s` to `%s`", argv[2], argv[3]);
    }

    struct bpf_program *program;
    bpf_object__for_each_program(program, object)
        printf("%s %u\n", bpf_program__name(program), id_of(program));
    puts("ready");
    fflush(stdout);

    while (getchar() != EOF)
        ;
    bpf_link__destroy(link);
    bpf_object__close(object);
    return 0;
}
